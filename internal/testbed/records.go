package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
)

// readRecords lists what the agent remembers: attachments and addresses. With
// no agent behind the socket there is nobody to ask, and nothing is listed.
func (inv Inventory) readRecords(n *Node) error {
	var pods agent.PodList
	if err := n.ask(agent.PathPods, &pods); err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return err
	}
	for _, p := range pods.Items {
		for _, a := range p.Attachments {
			inv.add("records", fmt.Sprintf("%s/%s: %s %s in %s, %s", p.Namespace, p.Name, a.Container, a.IfName, a.Network, a.Phase))
		}
	}
	var ips agent.IPList
	if err := n.ask(agent.PathIPs, &ips); err != nil {
		return err
	}
	for _, ip := range ips.Items {
		inv.add("leases", fmt.Sprintf("%s of %s: %s %s %s/%s", ip.Address, ip.Subnet, ip.Container, ip.IfName, ip.Namespace, ip.Pod))
	}
	return nil
}

// ask gets one of the operator's views over the agent's socket.
func (n *Node) ask(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, http.NoBody)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.Path(cni.DefaultSocket))
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
