package controller_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// saved are all objects as they are now.
func (w *world) saved() map[object.Key]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.objects)
}

// rollBack makes all objects what they were, in no order.
func (w *world) rollBack(to map[object.Key]any) {
	for _, all := range []map[object.Key]any{w.saved(), to} {
		for k := range all {
			w.set(k, to[k])
		}
	}
}

// TestOldSnapshot: the API server's database is restored from an old snapshot, under a
// leader or before the next one. Pods that it has again have what they had, also where
// others have got it meanwhile, and at no moment two ports have one address.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("the leader stays: %t", leads), func(t *testing.T) {
			t.Parallel()
			w, db := newWorld(), database(t)
			w.subnet("web", v1.SubnetSpec{CIDRBlock: "10.41.0.0/28", Default: true})
			for i := range 6 {
				p := declared(fmt.Sprintf("old%d", i), fmt.Sprint("old", i))
				p.Node = "n1"
				w.set(podKey(p.Name), p)
			}
			one := lead(t, "one", w, db)
			told := map[string]string{}
			for i := range 6 {
				name := fmt.Sprintf("old%d", i)
				told[name+".ns"] = w.ip(t, name)
				told[name+".ns"] = w.notes(name)["ovn.kubernetes.io/mac_address"] + " " + told[name+".ns"]
			}
			w.counts(t, "web", "6", "10.41.0.2-10.41.0.7", "7", "10.41.0.8-10.41.0.14")
			require.Eventually(t, func() bool { return len(lister[*v1.IP]{w, object.KindIP}.List()) == 6 }, patience, tick)
			snapshot := w.saved()

			// Three go, and others get their addresses by name; more come than the rest has.
			for i := range 3 {
				w.set(podKey(fmt.Sprintf("old%d", i)), nil)
			}
			for i := range 3 {
				_, ip, _ := strings.Cut(told[fmt.Sprintf("old%d.ns", i)], " ")
				w.pod(fmt.Sprintf("new%d", i), fmt.Sprint("new", i), "ovn.kubernetes.io/ip_address", ip)
				require.Equal(t, ip, w.ip(t, fmt.Sprintf("new%d", i)))
			}
			for i := range 7 {
				w.pod(fmt.Sprintf("more%d", i), fmt.Sprint("more", i))
				w.ip(t, fmt.Sprintf("more%d", i))
			}

			if !leads {
				one.stop()
			}
			w.rollBack(snapshot)
			if !leads {
				lead(t, "two", w, db)
			}
			end := time.Now().Add(patience)
			for now := ports(db); !maps.Equal(now, told); now = ports(db) {
				require.True(t, time.Now().Before(end), "%v is not %v", now, told)
				by := map[string]string{}
				for port, has := range now {
					_, ip, _ := strings.Cut(has, " ")
					require.Empty(t, by[ip], "%s is given twice: %v", ip, now)
					by[ip] = port
				}
			}
			for i := range 6 {
				name := fmt.Sprintf("old%d", i)
				require.Equal(t, told[name+".ns"], w.notes(name)["ovn.kubernetes.io/mac_address"]+" "+w.ip(t, name))
			}
			w.counts(t, "web", "6", "10.41.0.2-10.41.0.7", "7", "10.41.0.8-10.41.0.14")
			require.Eventually(t, func() bool {
				for _, o := range (lister[*v1.IP]{w, object.KindIP}).List() {
					if told[o.Name] != o.Spec.MacAddress+" "+o.Spec.V4IPAddress {
						return false
					}
				}
				return len(lister[*fairlead.AddressLease]{w, object.KindClaim}.List()) == 0
			}, patience, tick)
		})
	}
}
