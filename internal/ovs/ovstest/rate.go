package ovstest

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// RequireRate has more than a rate, in Mbit/s, sent from one namespace to an address in
// another, and compares what arrives within 10 %, when a burst of 1 Mbit is through. More never arrives; a busy machine,
// which may bring less, gets three tries.
func RequireRate(t testing.TB, from, to *netns.Handle, addr string, mbit float64) {
	t.Helper()
	const payload, frame = 1350, (1350 + 8 + 20 + 14) * 8 // bytes, and bits as tc counts them
	var in net.PacketConn
	var out net.Conn
	netnstest.Do(t, to, func() (err error) { in, err = net.ListenPacket("udp", addr); return err })
	netnstest.Do(t, from, func() (err error) { out, err = net.Dial("udp", addr); return err })
	var got atomic.Int64
	done := make(chan struct{}, 2)
	go func() {
		buf := make([]byte, 2*payload)
		for {
			if _, _, err := in.ReadFrom(buf); err != nil {
				done <- struct{}{}
				return // closed
			}
			got.Add(1)
		}
	}()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- struct{}{}
				return
			case <-time.After(2 * time.Millisecond): // 5 Mbit/s
				_, _ = out.Write(make([]byte, payload)) // what is held back is not sent
			}
		}
	}()
	defer func() { close(stop); _ = in.Close(); _ = out.Close(); <-done; <-done }()
	require.Eventually(t, func() bool { return got.Load() > 1_000_000/frame+50 }, time.Minute, time.Millisecond)
	for try := 1; ; try++ {
		begun, before := time.Now(), got.Load()
		time.Sleep(3 * time.Second)
		now := float64(got.Load()-before) * frame / 1e6 / time.Since(begun).Seconds()
		t.Logf("%.2f Mbit/s of %.0f", now, mbit)
		require.Less(t, now, mbit*1.1)
		if now > mbit*0.9 {
			return
		}
		require.Less(t, try, 3, "less than the rate")
	}
}
