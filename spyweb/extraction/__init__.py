"""Extract items from pages.  Hostile HTML is parsed in a separate process that can't open a file or a socket.

`open_extractor` in extractor.py is the daemon's way in; `worker` is what runs on the other side of wire.py.
"""
