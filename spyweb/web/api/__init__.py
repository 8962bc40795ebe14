"""The handlers of the JSON API, a module per resource; app.py lists their addresses."""
