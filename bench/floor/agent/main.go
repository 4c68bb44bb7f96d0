// Command agent is the floor under an ADD: for each request it does, one after
// the other, as many durable commits as Fairlead waits for, the least netlink,
// and one OVSDB transaction with its ofport. It keeps no record, checks
// nothing, and cannot recover: what Fairlead costs above it is what those are
// worth.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

type agent struct {
	commits int
	disk    *disk
	kernel  kernel
	ovs     *database
}

func main() {
	socket := flag.String("socket", "/run/floor.sock", "where the plugin calls")
	file := flag.String("file", "/var/lib/floor", "what is flushed")
	bridge := flag.String("bridge", "br-int", "where ports go")
	commits := flag.Int("commits", 2, "durable commits that an ADD waits for")
	ovn := flag.Bool("ovn", false, "wait for ovn-installed in place of the ofport")
	flag.Parse()
	a := &agent{commits: *commits}
	var err error
	if a.disk, err = openDisk(*file); err != nil {
		fatal(err)
	}
	if a.ovs, err = dial("/run/openvswitch/db.sock", *bridge, *ovn); err != nil {
		fatal(err)
	}
	l, err := net.Listen("unix", *socket)
	if err != nil {
		fatal(err)
	}
	fatal(a.serve(l))
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "floor:", err)
	os.Exit(1)
}

func (a *agent) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go a.answer(c)
	}
}

func (a *agent) answer(c net.Conn) {
	defer c.Close()
	request, err := bufio.NewReader(c).ReadString('\n')
	if err == nil {
		err = a.do(strings.Fields(request))
	}
	mark := "+"
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		mark = "-"
	}
	_, _ = c.Write([]byte(mark)) // a plugin that went away needs no answer
}

func (a *agent) do(request []string) error {
	if len(request) < 3 {
		return fmt.Errorf("request %q", request)
	}
	command, container, netns, p := request[0], request[1], request[2], port{iface: request[1]}
	if len(request) > 4 {
		mbps, err := strconv.Atoi(request[4])
		if err != nil {
			return err
		}
		p = port{request[3], mbps}
	}
	host := container[:12] + "_h"
	if command == "DEL" {
		return errors.Join(a.ovs.delPort(host, p), a.kernel.detach(host))
	}
	return a.add(host, p, netns)
}

// add commits before and after the work, as a journal must.
func (a *agent) add(host string, p port, netns string) error {
	for range a.commits / 2 {
		if err := a.disk.commit(); err != nil {
			return err
		}
	}
	if err := a.kernel.attach(host, netns); err != nil {
		return err
	}
	if err := a.ovs.addPort(host, p); err != nil {
		return err
	}
	for range a.commits - a.commits/2 {
		if err := a.disk.commit(); err != nil {
			return err
		}
	}
	return nil
}
