package image

import (
	"archive/tar"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the images of a cluster with OVN; their tag is FairleadTag.
const (
	ControllerName = "fairlead.local/fairlead-controller"
	OVNName        = "fairlead.local/fairlead-ovn"
)

// Controller is the target `controller` of deploy/Dockerfile, of a folder's program.
func Controller(dir string) ([]byte, error) {
	i := newImage(ControllerName+":"+FairleadTag, "/usr/bin/fairlead-controller")
	if err := i.addFile(filepath.Join(dir, "fairlead-controller"), "usr/bin/fairlead-controller"); err != nil {
		return nil, err
	}
	return i.archive()
}

// ovnPrograms are what OVN's central part, a chassis and its Open vSwitch run, and
// those that people look at them with.
var ovnPrograms = []string{
	"/usr/sbin/ovsdb-server", "/usr/bin/ovsdb-tool", "/usr/bin/ovsdb-client", "/usr/bin/ovs-appctl", "/usr/bin/ovs-vsctl", "/usr/bin/ovs-ofctl", "/usr/sbin/ovs-vswitchd",
	"/usr/bin/ovn-northd", "/usr/bin/ovn-controller", "/usr/bin/ovn-nbctl", "/usr/bin/ovn-sbctl", "/usr/bin/ovn-trace", "/usr/bin/ovn-appctl",
}

// OVN is the target `ovn` of deploy/Dockerfile: OVN's programs of this machine with
// their libraries and schemas, the controller of a folder, which runs a member of
// central, and the operator's commands.
func OVN(dir string) ([]byte, error) {
	i := newImage(OVNName+":"+FairleadTag, "/usr/bin/fairlead-controller", "central")
	if err := i.addBusybox(nil); err != nil {
		return nil, err
	}
	i.add(tar.Header{Typeflag: tar.TypeDir, Name: "run/", Mode: 0o755}, nil)
	i.link("var/run", "../run")
	if err := i.addOVN(); err != nil {
		return nil, fmt.Errorf("image %s: %w (run: scripts/setup cluster)", i.name, err)
	}
	for _, program := range []string{"fairlead-controller", "fairlead"} {
		if err := i.addFile(filepath.Join(dir, program), "usr/bin/"+program); err != nil {
			return nil, err
		}
	}
	return i.archive()
}

// addOVN puts OVN's programs, libraries and schemas into an image.
func (i *image) addOVN() error {
	libraries, err := linked(ovnPrograms...)
	if err != nil {
		return err
	}
	schemas, err := filepath.Glob("/usr/share/ovn/*.ovsschema")
	if err != nil {
		return err
	}
	for _, file := range ovnPrograms {
		if err := i.addFile(file, "bin/"+filepath.Base(file)); err != nil {
			return err
		}
	}
	schemas = append(schemas, "/usr/share/openvswitch/vswitch.ovsschema")
	for _, file := range slices.Concat(libraries, schemas) {
		if err := i.addFile(file, strings.TrimPrefix(file, "/")); err != nil {
			return err
		}
	}
	return nil
}
