//go:build vm

package vm

// job is a package whose tests run in the VM. A job is added by a line here;
// the VM is slow (no hardware virtualization): a few seconds for each test.
type job struct {
	pkg string
	// run is what `go test -run` selects; "" is all of them.
	run string
	// why says what only this kernel can show.
	why string
}

var jobs = []job{
	{"./test/e2e", "^TestKernel", "tests made for this kernel: its datapath, enforced rates, ipvlan"},
	{"./test/e2e", "^(TestVLANsAreSeparate|TestGateway|TestAgentKilledWhilePodsTalk|TestConfDBLost|TestSeedVLANQoS)$",
		"the product on the kernel's datapath"},
	{"./internal/driver/ovs", "^(TestConformance|TestConformanceInternalPort|TestSeedVLANQoS|TestRateReachesTheKernel|TestTraffic|" +
		"TestInternalPortTraffic|TestResyncAfterLostDatabase|TestRecover)$", "the driver on the kernel's datapath"},
	{"./internal/kernel/rtnl", "", "netlink of an older kernel"},
	{"./internal/kernel/sysfs", "", "ethtool and generic netlink of an older kernel"},
}
