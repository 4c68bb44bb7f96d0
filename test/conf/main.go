// Command conf tells what the runtimes' own code makes of a folder of CNI
// configurations: go-cni, which containerd has, and ocicni, which CRI-O has. The
// tests of internal/install/explain compare. It is a module of its own, so that
// nothing of theirs is in the product's go.mod.
//
//	conf containerd DIR BINDIR MAX_CONF_NUM
//	conf cri-o DIR BINDIR CNI_DEFAULT_NETWORK
//	conf watch DIR BINDIR
//
// watch is ocicni at work: a line with the default network's name whenever a line
// comes in, and so on until the end of standard input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/go-cni"
	"github.com/cri-o/ocicni/pkg/ocicni"
)

// network is one that is loaded.
type network struct {
	IfName string   `json:"ifName,omitempty"`
	Name   string   `json:"name"`
	File   string   `json:"file,omitempty"` // go-cni does not keep it
	Types  []string `json:"types"`
}

// loaded is what a runtime has after reading the folder.
type loaded struct {
	Ready    bool      `json:"ready"`
	Networks []network `json:"networks"`
	Why      string    `json:"why,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conf:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("see the package's comment")
	}
	dir, bin, last := args[1], args[2], strings.Join(args[3:], "")
	switch args[0] {
	case "containerd":
		return containerd(dir, bin, last)
	case "cri-o":
		return crio(dir, bin, last)
	case "watch":
		return watch(dir, bin)
	}
	return fmt.Errorf("unknown runtime %s", args[0])
}

// containerd loads as its CRI plugin does with use_internal_loopback.
func containerd(dir, bin, most string) error {
	n, err := strconv.Atoi(most)
	if err != nil {
		return err
	}
	c, err := cni.New(cni.WithMinNetworkCount(1), cni.WithPluginConfDir(dir), cni.WithPluginMaxConfNum(n), cni.WithPluginDir([]string{bin}))
	if err != nil {
		return err
	}
	out := loaded{Networks: []network{}}
	if err := c.Load(cni.WithDefaultConf); err != nil {
		out.Why = err.Error()
	}
	for _, l := range c.GetConfig().Networks {
		net := network{IfName: l.IFName, Name: l.Config.Name}
		for _, p := range l.Config.Plugins {
			net.Types = append(net.Types, p.Network.Type)
		}
		out.Networks = append(out.Networks, net)
	}
	out.Ready = len(out.Networks) > 0 // go-cni's ready()
	return json.NewEncoder(os.Stdout).Encode(out)
}

func crio(dir, bin, name string) error {
	p, err := ocicni.InitCNINoInotify(name, dir, "", bin)
	if err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	out := loaded{Networks: []network{}}
	// ocicni keeps what it loaded to itself.
	for nets := reflect.ValueOf(p).Elem().FieldByName("networks").MapRange(); nets.Next(); {
		kept := nets.Value().Elem()
		net := network{Name: nets.Key().String(), File: kept.FieldByName("filePath").String()}
		plugins := kept.FieldByName("config").Elem().FieldByName("Plugins")
		for i := range plugins.Len() {
			net.Types = append(net.Types, plugins.Index(i).Elem().FieldByName("Network").Elem().FieldByName("Type").String())
		}
		if net.Name == p.GetDefaultNetworkName() {
			net.IfName, out.Ready = "eth0", true
		}
		out.Networks = append(out.Networks, net)
	}
	slices.SortFunc(out.Networks, func(a, b network) int { return strings.Compare(a.File, b.File) })
	return json.NewEncoder(os.Stdout).Encode(out)
}

func watch(dir, bin string) error {
	p, err := ocicni.InitCNI("", dir, bin)
	if err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Printf("%q\n", p.GetDefaultNetworkName())
	}
	return nil
}
