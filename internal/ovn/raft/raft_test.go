package raft_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovn/raft"
)

// asLeader is what ovsdb-server 3.1 says after the member at 10.0.0.3 lost its disk and joined
// anew: its former id has a connection, since somebody answers at the address.
const asLeader = `aca3
Name: OVN_Northbound
Cluster ID: 178c (178ced87-0e0d-4f2a-aa19-7665a5c99c18)
Server ID: aca3 (aca390a5-5529-40e2-b1b2-43d62285a12d)
Address: ssl:10.0.0.1:6643
Status: cluster member
Role: leader
Term: 4
Leader: self
Vote: self

Election timer: 1000
Log: [2, 8]
Connections: <-0655 ->0655 ->74b2 <-e6b9 (->0bad)
Disconnections: 7
Servers:
    e6b9 (e6b9 at ssl:10.0.0.3:6643) next_index=8 match_index=7 last msg 18 ms ago
    74b2 (74b2 at ssl:10.0.0.3:6643) next_index=8 match_index=6 last msg 22506 ms ago
    aca3 (aca3 at ssl:10.0.0.1:6643) (self) next_index=2 match_index=7
    0655 (0655 at ssl:10.0.0.2:6643) next_index=8 match_index=7 last msg 18 ms ago
    0bad (0bad at ssl:10.0.0.4:6643) next_index=8 match_index=0
`

func TestRead(t *testing.T) {
	t.Parallel()
	v := raft.Read(asLeader)
	require.True(t, v.Joined() && v.Leads() && v.Led())
	require.Equal(t, "4", v.Term)
	ms := time.Millisecond
	require.Equal(t, []raft.Server{
		{ID: "aca3", Address: "ssl:10.0.0.1:6643", Self: true, Connected: true, Heard: -1},
		{ID: "0655", Address: "ssl:10.0.0.2:6643", Connected: true, Heard: 18 * ms},
		{ID: "e6b9", Address: "ssl:10.0.0.3:6643", Connected: true, Heard: 18 * ms},
		{ID: "74b2", Address: "ssl:10.0.0.3:6643", Heard: 22506 * ms},
		{ID: "0bad", Address: "ssl:10.0.0.4:6643", Heard: -1},
	}, v.Servers)

	v = raft.Read("Status: joining cluster\nRole: follower\nTerm: 0\nLeader: unknown\nConnections: <-0655\nServers:\n" +
		"    0655 (0655 at ssl:10.0.0.2:6643) last msg 99999 ms ago\n")
	require.False(t, v.Joined() || v.Leads() || v.Led())
	require.True(t, v.Servers[0].Connected, "one who does not lead is told nothing by others who do not")
}
