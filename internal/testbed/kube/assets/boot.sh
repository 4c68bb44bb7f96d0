# Runs in a node's mount namespace after each boot: gives kubelet folders that
# the machine does not see. Arguments: the node's folder.
set -eu
disk=$1/disk

# What a reboot keeps.
for d in var/lib/kubelet etc/kubernetes/manifests; do
	mkdir -p "/$d" "$disk/$d"
	mount --bind "$disk/$d" "/$d"
done
# Else kubelet does it, by one more mount over its folder, while it opens sockets
# there: now and then one of them is lost by that, and kubelet ends.
mount --make-rshared /var/lib/kubelet

# kubelet writes links to logs into /var/log/containers.
mkdir -p "$disk/log"
mount --bind "$disk/log" /var/log

# kubelet sets these for the whole machine unless they already are what it
# wants: it finds them so.
shadow() {
	mkdir -p "$1/sysctl"
	echo "$3" >"$1/sysctl/$2"
	mount --bind "$1/sysctl/$2" "/proc/sys/$(echo "$2" | tr . /)"
}
shadow "$1" vm.overcommit_memory 1
shadow "$1" vm.panic_on_oom 0
shadow "$1" kernel.panic 10
shadow "$1" kernel.panic_on_oops 1
shadow "$1" kernel.keys.root_maxkeys 1000000
shadow "$1" kernel.keys.root_maxbytes 25000000
