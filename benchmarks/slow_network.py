"""Pass on between a client and a server's socket, each chunk after a delay, from a separate process:

    python -m benchmarks.slow_network SOCKET NEW_SOCKET SECONDS

Prints a line once it listens.  Threads that sleep are more exact below a millisecond than an event loop's timers.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

CHUNK = 1 << 16


def pass_on(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    while chunk := source.recv(CHUNK):
        time.sleep(delay_s)
        target.sendall(chunk)
    target.shutdown(socket.SHUT_WR)


def main() -> None:
    path, new_path, delay_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(new_path)
        listener.listen()
        print("listening", flush=True)
        while True:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(path)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=pass_on, args=(*pair, delay_s), daemon=True).start()


if __name__ == "__main__":
    main()
