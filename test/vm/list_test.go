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
	// soak: it repeats what other jobs show, and is left to make soak.
	soak bool
}

var jobs = []job{
	{pkg: "./test/e2e", run: "^TestKernel", why: "made for this kernel: its datapath, rates that are enforced, ipvlan"},
	{pkg: "./test/e2e", run: "^(TestVLANsAreSeparate|TestGateway)$", why: "the product on the kernel's datapath", soak: true},
	{pkg: "./test/e2e", run: "^(TestAgentKilledWhilePodsTalk|TestConfDBLost)$", why: "faults on the kernel's datapath", soak: true},
	{pkg: "./internal/driver/builtin/sriov", run: "^TestKernel", why: "virtual functions of a card"},
	{pkg: "./internal/agent/fence", run: "^TestKernel", why: "a virtual function goes off the network by the link in the pod"},
	{pkg: "./internal/agent/deviceplugin", run: "^TestKernel", why: "functions are made, lose their driver, and are cleaned"},
	{pkg: "./internal/kernel/sriov", run: "^TestKernel", why: "attributes that the emulated card refuses, on a simulated one"},
	{pkg: "./internal/driver/ovs", run: "^(TestResyncAfterLostDatabase|TestPortSecurity)$", why: "the driver on the kernel's datapath"},
	{pkg: "./internal/driver/ovs", run: "^(TestSeedVLANQoS|TestRateReachesTheKernel|TestDelayBehindARate|TestTraffic)$",
		why: "the driver below what TestKernelShapesPods and its like show", soak: true},
	{pkg: "./internal/driver/ovs", run: "^TestConformance$/^(attach_again|two_interfaces_of_one_pod|namespace_gone)$",
		why: "the driver on the kernel's datapath", soak: true},
	{pkg: "./internal/gateway/standalone", run: "^TestKernel", why: "rates of a node's gateway, which need policing"},
	{pkg: "./internal/driver/builtin/macvlan", run: "^Test(Ipvlan|VLAN)", why: "ipvlan and vlan as parts of the agent, beside upstream's programs, and VLANs of a master"},
	{pkg: "./internal/node/podruntime", run: "^(TestCgroupOfAPod|TestStrayProcess)$", why: "cgroup v2, which this VM has mounted alone"},
	{pkg: "./internal/gateway/uplink", run: "^(TestKernel|TestRebootWithoutAgent$)", why: "a bond below VLAN links goes to a bridge of the kernel's datapath"},
	{pkg: "./internal/kernel/nft", run: "^TestKernel", why: "VLAN links above a NIC that is deaf otherwise"},
	{pkg: "./internal/kernel/qdisc", run: ".", why: "netem"},
	{pkg: "./internal/kernel/rtnl", run: ".", why: "netlink of an older kernel"},
	{pkg: "./internal/kernel/sysfs", run: ".", why: "ethtool and generic netlink of an older kernel"},
}

// The device plugin makes the functions anew, and so comes last.
var iommuJobs = []job{
	{pkg: "./internal/driver/builtin/sriov", run: "^TestKernelVFOfPrograms$", why: "functions of vfio-pci, whose attributes a pod's configuration sets"},
	{pkg: "./internal/agent/deviceplugin", run: "^TestIOMMU", why: "functions for programs, as policies have it"},
}
