//go:build vm

package vm

// job is a package whose tests run in the VM. A job is added by a line here;
// the VM is slow (no hardware virtualization): some seconds for each node.
type job struct {
	pkg string
	// run is what `go test -run` selects.
	run string
	// why says what only this kernel can show.
	why string
}

var jobs = []job{
	{"./test/e2e", "^TestKernel", "made for this kernel: its datapath, rates that are enforced, ipvlan"},
	{"./test/e2e", "^(TestVLANsAreSeparate|TestGateway|TestAgentKilledWhilePodsTalk|TestConfDBLost)$",
		"the product on the kernel's datapath"},
	{"./internal/driver/builtin/sriov", "^TestKernel", "virtual functions of a card"},
	{"./internal/agent/deviceplugin", "^TestKernel", "functions are made, lose their driver, and are cleaned"},
	{"./internal/kernel/sriov", "^TestKernel", "attributes that the emulated card refuses, on a simulated one"},
	{"./internal/driver/ovs", "^(TestSeedVLANQoS|TestRateReachesTheKernel|TestDelayBehindARate|TestTraffic|TestResyncAfterLostDatabase|TestPortSecurity)$",
		"the driver on the kernel's datapath"},
	{"./internal/driver/ovs", "^TestConformance$/^(attach_again|two_interfaces_of_one_pod|namespace_gone)$",
		"the driver on the kernel's datapath"},
	{"./internal/gateway/standalone", "^TestKernel", "rates of a node's gateway, which need policing"},
	{"./internal/driver/builtin/macvlan", "^Test(Ipvlan|VLAN)", "ipvlan and vlan as parts of the agent, beside upstream's programs, and VLANs of a master"},
	{"./internal/node/podruntime", "^(TestCgroupOfAPod|TestStrayProcess)$", "cgroup v2, which this VM has mounted alone"},
	{"./internal/gateway/uplink", "^(TestKernel|TestRebootWithoutAgent$)", "a bond below VLAN links goes to a bridge of the kernel's datapath"},
	{"./internal/kernel/nft", "^TestKernel", "VLAN links above a NIC that is deaf otherwise"},
	{"./internal/kernel/qdisc", ".", "netem"},
	{"./internal/kernel/rtnl", ".", "netlink of an older kernel"},
	{"./internal/kernel/sysfs", ".", "ethtool and generic netlink of an older kernel"},
}
