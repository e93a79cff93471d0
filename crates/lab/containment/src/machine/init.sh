#!/bin/busybox sh
# The first process of a guest. It makes the command's files and its network, says that it is ready,
# waits for an answer, runs the command with its limits, and reports over a serial port how it ended.
# Everything that the command can reach is bounded by the host as well.

export PATH=/bin
# The shell runs busybox's commands by their names.
/bin/busybox mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devices /dev
for module in /modules/*; do insmod "$module"; done
echo 1 > /proc/sys/kernel/modules_disabled

# Ends the guest, and says why on the console.
fail() {
    echo "the guest $*"
    poweroff -f
}
# An interface of the other end's hardware address. Neither end asks for addresses.
interface() {
    for found in /sys/class/net/*; do
        [ "$(cat "$found/address")" = "$1" ] || continue
        ip link set dev "${found##*/}" name "$2"
    done
    ip link set dev "$2" arp off &&
        ip link set dev "$2" mtu "$3" &&
        ip address add "$4" dev "$2" &&
        ip link set dev "$2" up || fail "has no interface $2"
}
route() {
    ip route add "$1" dev "$2" || fail "has no route to $1"
}
parameter() {
    { echo "$2" > "/proc/sys/$1"; } 2> /dev/null || fail "cannot set $1 to $2"
}
. /settings.sh

mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144,nosuid,nodev base /base ||
    fail "has no files"
mount -t tmpfs -o "nosuid,nodev,mode=755,$disk" space /space
cp -a /base/folder /space/folder
for name in tmp shm; do
    mkdir /space/$name
    chown 1000:1000 /space/$name
done
mount -t proc -o nosuid,nodev,noexec proc /base/proc
mount -t tmpfs -o nosuid,noexec,mode=755,size=64k,nr_inodes=32 devices /base/dev
mkdir /base/dev/pts /base/dev/shm
for device in null:3 zero:5 full:7 random:8 urandom:9 tty:0; do
    major=1
    [ $device = tty:0 ] && major=5
    mknod -m 666 "/base/dev/${device%:*}" c $major "${device#*:}"
done
ln -s pts/ptmx /base/dev/ptmx
ln -s /proc/self/fd /base/dev/fd
for number in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${number%:*}" "/base/dev/${number#*:}"
done
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=666 terminals /base/dev/pts
mount --bind /space/folder /base/folder
mount --bind /space/shm /base/dev/shm
# The program that the command is given.
if [ -e /base/tmp/sunder ]; then
    touch /space/shm/sunder
    mount --bind /base/tmp/sunder /base/dev/shm/sunder || fail "has no program"
fi
mount --bind /space/tmp /base/tmp
mount -o remount,ro,nosuid,noexec /base/dev

hostname contained
for which in all default; do
    [ -e /proc/sys/net/ipv6 ] && echo 1 > /proc/sys/net/ipv6/conf/$which/disable_ipv6
done
ip link set dev lo up
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
# The host passes packets on once, so that they leave it with 64.
echo 65 > /proc/sys/net/ipv4/ip_default_ttl
set_up_network

group=/sys/fs/cgroup/command
mount -t cgroup2 -o nosuid,nodev,noexec groups /sys/fs/cgroup
echo "+memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mkdir $group
echo "$memory" > $group/memory.max
echo "$processes" > $group/pids.max
echo 1 > $group/memory.oom.group 2> /dev/null

# Prints the limit that was reached, if one was.
reached() {
    while read -r name count; do
        [ "$name" = oom_kill ] && [ "$count" != 0 ] && echo memory && return
    done < $group/memory.events
    read -r name count < $group/pids.events
    [ "$count" != 0 ] && echo processes && return
    case " $(stat -f -c '%f %d' /space) " in *" 0 "*) echo disk ;; esac
}
# Whether a port is open: TCP's listening sockets and UDP's without a peer.
has_open_port() {
    for table in tcp:0A tcp6:0A udp:07 udp6:07; do
        [ -e "/proc/net/${table%:*}" ] || continue
        while read -r _ _ _ state _; do
            [ "$state" = "${table#*:}" ] && return
        done < "/proc/net/${table%:*}"
    done
    return 1
}
watch_limits() {
    limit=
    while [ -z "$limit" ]; do
        sleep 0.1
        limit=$(reached)
    done
    echo "limit $limit" >&3
}
watch_ports() {
    until has_open_port; do sleep 0.05; done
    echo open >&3
}
answer() {
    while read -r word; do
        [ "$word" = terminate ] || continue
        while read -r process; do kill -TERM "$process"; done < $group/cgroup.procs
    done <&3
}

# The device of a port with a name.
port() {
    for found in /sys/class/virtio-ports/*; do
        [ "$(cat "$found/name")" = "$1" ] && echo "/dev/${found##*/}" && return
    done
    fail "has no port $1"
}
control=$(port control)
exec 3<> "$control"
mkfifo /output
cat < /output > "$(port output)" 3<&- &
reader=$!
echo ready >&3
read -r _ <&3
# From now on the console has only what ends the kernel.
dmesg -n 1
exec > /dev/null 2>&1
echo started >&3
(
    echo 0 > $group/cgroup.procs
    exec 3<&-
    ulimit -c 0 -n 1024 -l 64
    exec setsid chroot /base /usr/bin/env -i HOME=/folder USER=contained LANG=C.UTF-8 TMPDIR=/tmp \
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin \
        setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all --inh-caps=-all \
        --no-new-privs sh -c 'cd "$0" && exec "$@"' "$directory" "$@"
) < /dev/null > /output 2>&1 &
command=$!
watch_limits &
watch_ports &
answer &
wait $command
code=$?
echo ended >&3
# What it has printed is out before the end is reported.
echo 1 > $group/cgroup.kill
wait $reader
limit=$(reached)
[ -n "$limit" ] && echo "limit $limit" >&3
echo "code $code" >&3
# The host ends the machine.
while :; do sleep 1000; done
