package main

import (
	"net"
	"path/filepath"
)

// central is OVN's central part: both databases and ovn-northd.
type central struct{ nb, sb, northd *daemon }

const (
	ovnSchemas = "/usr/share/ovn"
	nbSocket   = "/run/ovn/nb.sock"
	sbSocket   = "/run/ovn/sb.sock"
	sbPort     = "6642"
)

// startCentral runs central in the node.
func (n *node) startCentral() (c central, err error) {
	if err := n.command("mkdir", "-p", "/run/ovn"); err != nil {
		return c, err
	}
	if c.nb, err = n.startDatabase("nb", nbSocket); err != nil {
		return c, err
	}
	if c.sb, err = n.startDatabase("sb", sbSocket, "--remote=ptcp:"+sbPort+":127.0.0.1"); err != nil {
		return c, err
	}
	c.northd, err = n.start("ovn-northd", "--ovnnb-db=unix:"+nbSocket, "--ovnsb-db=unix:"+sbSocket,
		"--unixctl=/run/ovn/northd.ctl", "--verbose=console:warn")
	return c, err
}

// startDatabase runs one of central's databases and waits until it listens.
func (n *node) startDatabase(name, socket string, more ...string) (*daemon, error) {
	file := "/var/lib/" + name + ".db"
	if err := n.command("ovsdb-tool", "create", file, filepath.Join(ovnSchemas, "ovn-"+name+".ovsschema")); err != nil {
		return nil, err
	}
	argv := []string{"ovsdb-server", file, "--remote=punix:" + socket, "--unixctl=/run/ovn/" + name + ".ctl", "--verbose=console:warn"}
	d, err := n.startAs("ovsdb-"+name, append(argv, more...)...)
	if err != nil {
		return nil, err
	}
	return d, n.inside(func() error {
		return d.await(func() error {
			c, err := net.Dial("unix", socket)
			if err == nil {
				err = c.Close()
			}
			return err
		})
	})
}
