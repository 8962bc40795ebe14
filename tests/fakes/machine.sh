#!/bin/sh
# Run a program on what looks like a machine of its own: the folder ROOT is /, with everything of this machine but
# /etc, a copy, /var, which is empty, and /usr/local/sbin, which is the folder PROGRAMS.  Nothing of this machine changes.
#
#     unshare --user --map-root-user --mount sh machine.sh ROOT PROGRAMS PROGRAM [ARGUMENT ...]
set -e
root=$1 programs=$2
shift 2
mkdir -p "$root/tmp"
mount --rbind /tmp "$root/tmp" # before the others, which are below it
for each in /*; do
    case $each in /etc | /var | /tmp | /lost+found) continue ;; esac
    if [ -L "$each" ]; then
        ln -s "$(readlink "$each")" "$root$each"
    elif [ -d "$each" ]; then
        mkdir "$root$each"
        mount --rbind "$each" "$root$each"
    fi
done
mkdir -p "$root/var/tmp" "$root/etc"
cp -r /etc/. "$root/etc" 2>/dev/null || true # but what only root may read
mount --bind "$programs" "$root/usr/local/sbin"
exec chroot "$root" "$@"
