"""The handlers of the JSON API, a module a resource; app.py lists their addresses."""
