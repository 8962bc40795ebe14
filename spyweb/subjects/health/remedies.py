"""The remedy for each problem of a daemon and its machine, by the problem's code; docs/operations.md has more."""

from __future__ import annotations

from collections.abc import Mapping

BACKUP = "backup"
# That keep jobs from running.
SCHEDULER, STORE, CLAIMS, POSTGRES, DISK, WORKERS = "scheduler", "store", "claims", "postgres", "disk", "workers"

REMEDIES: Mapping[str, str] = {
    SCHEDULER: "Look for a slow disk, too few cores, or a stall in the log.",
    STORE: "Free the disk or repair the database; until then no run begins. Then restart.",
    CLAIMS: "The store refuses: the log says why, and it is tried again.",
    POSTGRES: "Bring it back: the nodes go on by themselves.",
    DISK: "Check the disk: it answers too slowly, or not at all.",
    WORKERS: "Workers can't be started: look for a lack of memory or processes in the log.",
    "monitors": "Check the watched pages: they may have changed, or require a login.",
    "drift": "Compare the files; a run of the job restores them.",
    "server": "Fix server/init.lua; the previous version still runs.",
    "outbox": "Send them again once the receiver works, or wait until they are removed.",
    "channels": "`spyweb alerts channels` says what is wrong; `spyweb alerts test NAME` sends a message.",
    BACKUP: "`spyweb health` says why; `spyweb backup FILE` makes one at any time.",
    "heartbeat": "Check the address in [heartbeat] url, and whether this machine reaches it.",
    "connections": "Clients open more connections than the server takes: close some, or raise the limit.",
    "descriptors": "Raise LimitNOFILE of the service, or `ulimit -n`, and restart.",
    "processes": "Raise LimitNOFILE of the service, or `ulimit -n`, and restart; or wait.",
    "slow disk": "Check what else uses the disk, or move data/ to a faster one. Scripts wait for it.",
    "storage errors": "Check the runs with storage errors; the log has the reason.",
    "loop": "The log names the job or the part that caused it.",
    "held back": "Fix the script: its runs start again once the file is saved.",
    "nodes": "Start a node of this name, or one with these labels.",
    "dead nodes": "Start them again, or have them forgotten: `spyweb nodes forget NAME`.",
    "clock": "Have the clock set by NTP: a node whose clock is half a lease away from the database's runs nothing.",
    # What only `spyweb doctor` finds
    "daemon": "`spyweb start` starts it; under systemd `systemctl status spyweb` and the journal say why it ended.",
    "settings": "Fix config.toml: `spyweb check` lists each problem with its line.",
    "jobs": "`spyweb check` lists each problem with its line; what was loaded before still runs.",
    "owner": "Run spyweb as the owner of data/, or give it to this user: chown -R.",
    "access": "Keep others out: chmod 700 data.",
    "space": "Free space on this disk, keep less ([runs] and [records] keep), or move data/ with [daemon] data_dir.",
    "database": "Stop the daemon and restore a backup; without one `spyweb start --repair` begins a new database.",
    "libraries": "Install spyweb again with `-c constraints.txt`: it was tested with those versions.",
    "sandbox": "Use a kernel with Landlock and seccomp, and a unit or container that does not forbid them.",
    "certificate": "Renew it, then restart the daemon.",
}
