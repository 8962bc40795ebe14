"""Pages in, items out.  Hostile HTML is taken apart in a process of its own that can't open a file or a socket.

`open_extractor` in extractor.py is the daemon's way in; `worker` is what runs on the other side of wire.py.
"""
