package ovs_test

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// TestIDs: external ids of the switch are written where they differ, in one
// transaction; others' stay, and a change of theirs is heard.
func TestIDs(t *testing.T) {
	sw := ovstest.NewServer(t)
	var heard atomic.Int64
	c := runConfig(t, ovs.Config{Endpoint: sw.Endpoint(), Bridge: "br-int", Log: slog.New(slog.DiscardHandler), OnIDs: func() { heard.Add(1) }})
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	want := map[string]string{"a": "1", "b": "ssl:[fd00::1]:6642"}
	set := func() []string {
		t.Helper()
		wrote, err := c.SetIDs(t.Context(), func(map[string]string) map[string]string { return map[string]string{"a": want["a"], "b": want["b"]} })
		require.NoError(t, err)
		return wrote
	}
	_, err := c.SetIDs(t.Context(), func(map[string]string) map[string]string { return want })
	require.ErrorIs(t, err, core.ErrUnavailable, "nobody has used the database yet")
	sw.Vsctl("--no-wait", "init", "--", "set", "open_vswitch", ".", "external_ids:other=x", "external_ids:a=2")
	eventually(t, "the row", func() bool { ids, err := c.IDs(); return err == nil && ids["a"] == "2" })

	require.Equal(t, []string{"a", "b"}, set())
	eventually(t, "written", func() bool {
		ids, err := c.IDs()
		return err == nil && ids["a"] == "1" && ids["b"] == want["b"] && ids["other"] == "x"
	})
	require.Empty(t, set(), "all is so already")
	eventually(t, "heard", func() bool { return heard.Load() > 0 })
	before := heard.Load()
	sw.Vsctl("--no-wait", "set", "open_vswitch", ".", "external_ids:b=y")
	eventually(t, "somebody's change is heard", func() bool { return heard.Load() > before })
	require.Equal(t, []string{"b"}, set())
}
