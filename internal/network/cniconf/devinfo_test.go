package cniconf

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// NPWG device information specification v1.1, section 6.1: the status tells
// what the file held after the whole chain.
func TestStatusHasTheNetworksDevice(t *testing.T) {
	ns := core.Netns{Path: netns}
	spec := func(ifName string) core.Spec {
		return core.Spec{Driver: "exec", Network: "default/" + ifName, Key: core.Key{Container: "c", IfName: ifName}, Netns: ns}
	}
	early, late := json.RawMessage(`{"type":"pci"}`), json.RawMessage(`{"type":"vdpa"}`)
	nets := Status(
		[]core.Spec{spec("eth0"), spec("net1"), spec("net1"), spec("net1"), spec("net2")},
		[]core.Link{
			eth0(),
			{IfName: "net1", CNIResult: json.RawMessage(bridgeResult), DeviceInfo: early},
			{IfName: "net1", CNIResult: json.RawMessage(bridgeResult), DeviceInfo: late},
			{IfName: "net1", CNIResult: json.RawMessage(bridgeResult)},
			{IfName: "net2", CNIResult: json.RawMessage(`{"cniVersion":"1.0.0"}`), DeviceInfo: early},
		})
	require.Len(t, nets, 3)
	require.Nil(t, nets[0].DeviceInfo)
	require.Equal(t, late, nets[1].DeviceInfo)
	require.Equal(t, early, nets[2].DeviceInfo, "a device without an interface (vhost-user) has information all the same")
	raw, err := json.Marshal(nets[1])
	require.NoError(t, err)
	require.Contains(t, string(raw), `"device-info":{"type":"vdpa"}`)
}
