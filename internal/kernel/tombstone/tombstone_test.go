package tombstone_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
)

func TestBuriedLinksGoAndOthersStay(t *testing.T) {
	host, pod := netnstest.New(t), netnstest.New(t)
	c, err := rtnl.Open(host)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	var kept, dead rtnl.Link
	for name, l := range map[string]*rtnl.Link{"kept": &kept, "dead": &dead} {
		*l, err = c.NewVeth(rtnl.Veth{Name: name, Peer: pod, PeerName: name})
		require.NoError(t, err)
	}

	require.NoError(t, tombstone.Bury(c, dead.Index))
	require.NoError(t, tombstone.Bury(c, dead.Index), "again")
	_, err = c.LinkByName("dead")
	require.ErrorIs(t, err, core.ErrNotFound, "the name is free at once")

	// Those of an earlier process go first, without being told of.
	r := tombstone.New(host, slog.Default())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	gone := func() bool {
		_, err := c.LinkByIndex(dead.Index)
		return err != nil
	}
	require.Eventually(t, gone, time.Minute, time.Millisecond)
	require.NoError(t, tombstone.Bury(c, dead.Index), "what is gone is as it should be")
	_, err = c.LinkByName("kept")
	require.NoError(t, err)
	stop()
	<-ended
}
