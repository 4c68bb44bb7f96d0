package elsewhere

import (
	"context"
	"encoding/json"
	"fmt"
)

// The Node's condition by which Kubernetes keeps pods away from a node without
// network: its lifecycle controller sets a taint. The reasons are the reference's
// (sdn.md, 6), but for that of tunnels, where all is well but for the way to others.
const (
	NetworkUnavailable = "NetworkUnavailable"
	ReasonReachable    = "JoinSubnetGatewayReachable"
	ReasonUnreachable  = "JoinSubnetGatewayUnreachable"
	ReasonTunnel       = "TunnelUnreachable"
)

// Well tells that a node is Ready by what the API server has, and that its agent says its
// network is there, but for tunnels.
func Well(ctx context.Context, from Login, node string) (well bool, err error) {
	if err := from.about(ctx, "/api/v1/nodes", node, func(object []byte) { well = isWell(object) }); err != nil {
		return false, fmt.Errorf("read Node %s: %w", node, err)
	}
	return well, nil
}

func isWell(node []byte) bool {
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(node, &o); err != nil {
		return false
	}
	ready, reached := false, false
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case "Ready":
			ready = c.Status == "True"
		case NetworkUnavailable:
			reached = c.Status == "False" && c.Reason == ReasonReachable || c.Reason == ReasonTunnel
		}
	}
	return ready && reached
}
