# Runs as the first process of a node, in fresh network and mount namespaces,
# and keeps both alive. Arguments: the node's folder, the plugin folder.
# Standard input is a pipe from the test process: when that ends, even by
# SIGKILL, everything in the node is killed.
set -eu
dir=$1
plugins=$2

# Writes below these go to memory, so that mount points can be made without a
# trace on the machine. Must not be on disk: $dir may itself be an overlay.
mount -t tmpfs -o mode=0755 testbed "$dir/upper"
for d in etc opt var/lib; do
	mkdir -p "$dir/upper/$d/up" "$dir/upper/$d/work"
	mount -t overlay -o "lowerdir=/$d,upperdir=$dir/upper/$d/up,workdir=$dir/upper/$d/work" testbed "/$d"
done

# What a reboot must keep lies on the node's disk.
for d in etc/cni/net.d etc/fairlead var/lib/cni var/lib/fairlead; do
	mkdir -p "/$d" "$dir/disk/$d"
	mount --bind "$dir/disk/$d" "/$d"
done
mkdir -p /opt/cni/bin
mount --bind "$plugins" /opt/cni/bin
mount -o remount,bind,ro /opt/cni/bin

# A mount of the machine that is covered is still one in the list, which is where
# containerd looks how /run/netns is mounted.
while mountpoint -q /run/netns; do umount -l /run/netns; done
mount --bind "$dir/run" /run
mkdir -p -m 0755 /run/netns /run/lock

# sysfs shows the network of the namespace in which it was mounted; the cgroup
# hierarchies below it must stay.
mount --rbind /sys/fs/cgroup "$dir/cgroup"
mount -t sysfs -o nosuid,nodev,noexec testbed /sys
mount --rbind "$dir/cgroup" /sys/fs/cgroup

mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id

ip link set lo up
echo ready

# A builtin, so that the holder has no child. Nobody writes; it waits for the end.
while read -r _; do :; done

mine=$(readlink /proc/self/ns/mnt)
for p in /proc/[0-9]*; do
	pid=${p#/proc/}
	if [ "$pid" != $$ ] && [ "$(readlink "$p/ns/mnt")" = "$mine" ]; then kill -9 "$pid" || true; fi
done 2>/dev/null
