// Package vm runs tests of other packages in a virtual machine with Debian's
// own kernel, for what the kernel of the machine at hand may lack: Open
// vSwitch's datapath, policing, ipvlan, VLAN links. It knows the tests by name
// only; which ones is a table in list_test.go, how the VM is made is in vmrun.
//
// Run it by `make vm`, or with the programs built (make testbin):
//
//	go test -tags vm ./test/vm
package vm
