// Package alive finds out within two seconds that a node answers no more: it asks nodes
// over and over, by their tunnels and below them, and takes none for dead while it is
// itself the one that hears nobody. It must not know what an answer is, nor what follows
// from silence.
package alive

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Node is one to ask.
type Node struct {
	Name string
	// Tunnel is its address in the nodes' Subnet, where this machine is in that, and
	// Below one in the network under it; invalid for none.
	Tunnel, Below netip.Addr
	// Witness: nobody wants to know of it; it tells whether anybody is heard.
	Witness bool
}

// Line asks addresses.
type Line interface {
	Ask(netip.Addr) error // waits for no answer
	Close()
}

// Config is what a Watch is made of.
type Config struct {
	// Whom gives the nodes to ask now, this machine's own not among them.
	Whom func() []Node
	// Follow returns when it is known whom to ask, and calls changed whenever that may be
	// somebody else, until ctx ends. changed does not block.
	Follow func(ctx context.Context, changed func()) error
	// Open gives a line that tells heard who answers.
	Open func(ctx context.Context, heard func(netip.Addr)) (Line, error)
	// Changed hears that a node is silent now that was not, or no more.
	Changed func()
	// Suspected, unless it is nil, hears half a second before that a node may soon be.
	Suspected func()
	Log       *slog.Logger
}

// A node that misses `most` answers in a row is silent: 1 to 1.25 s after its end; one
// that never answered after `steady`, since it may be made at this moment. It is
// back after `steady` answers in a row, 5 s: by then ovn-controller has given the switch
// its flows, without which its tunnel is as silent.
const (
	period = 250 * time.Millisecond
	most   = 4
	steady = 20
	few    = 2 // missed answers that make a node one of those that are not heard, and suspect
	lists  = 2 * time.Second
)

// Watch knows which nodes are silent. Its methods may be called at once.
type Watch struct {
	Config
	mu     sync.Mutex
	nodes  []Node
	heard  map[netip.Addr]*track
	silent map[string]bool
	doubts map[string]bool // who is silent, or may soon be
	sees   sight           // by which paths others are heard now
	fault  string
}

// track is what was heard of an address.
type track struct {
	asked, answered bool // since the last look
	ever            bool
	missed, run     int // answers in a row that did not come, that came
}

// sight tells of each path that others are heard by it.
type sight struct{ tunnel, below bool }

// New makes a Watch that asks nobody yet.
func New(c Config) *Watch {
	return &Watch{Config: c, heard: map[netip.Addr]*track{}, silent: map[string]bool{}}
}

// Silent tells that a node does not answer, where others do.
func (w *Watch) Silent(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent[node]
}

// Suspect tells that a node is silent, or has missed so many answers that it may soon be.
func (w *Watch) Suspect(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubts[node]
}

// Blind tells that there are nodes to ask, and that their silence would mean nothing.
func (w *Watch) Blind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault != ""
}

// Run asks until ctx ends. Where there is no node to ask it does nothing.
func (w *Watch) Run(ctx context.Context) error {
	news := make(chan struct{}, 1)
	err := w.Follow(ctx, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the objects: %w", err)
	}
	again := time.NewTicker(lists)
	defer again.Stop()
	for {
		if w.list() {
			w.ask(ctx, news)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-news:
		}
	}
}

// ask asks, over one line, until there is nobody to ask. Whom to ask it looks at news, and
// now and then: this machine's own addresses are nobody's news.
func (w *Watch) ask(ctx context.Context, news <-chan struct{}) {
	line, err := w.Open(ctx, w.hears)
	if err != nil {
		w.says("nodes cannot be asked: " + err.Error())
		return
	}
	defer line.Close()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for turn := 1; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.look()
		isNew := turn%int(lists/period) == 0
		select {
		case <-news:
			isNew = true
		default:
		}
		if isNew && !w.list() {
			return
		}
		for _, to := range w.next() {
			_ = line.Ask(to) // what was not sent has no answer
		}
	}
}

// list takes the nodes that are to be asked now, false for none.
func (w *Watch) list() bool {
	nodes := w.Whom()
	if !slices.ContainsFunc(nodes, func(n Node) bool { return !n.Witness }) {
		nodes = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = nodes
	now, names := map[netip.Addr]*track{}, map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
		for _, ip := range []netip.Addr{n.Tunnel, n.Below} {
			if !ip.IsValid() {
				continue
			}
			if now[ip] = w.heard[ip]; now[ip] == nil {
				now[ip] = &track{}
			}
		}
	}
	w.heard = now
	maps.DeleteFunc(w.silent, func(name string, _ bool) bool { return !names[name] })
	if len(nodes) == 0 {
		w.fault, w.doubts = "", nil
	}
	return len(nodes) > 0
}

// hears takes an answer.
func (w *Watch) hears(from netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.heard[from]; t != nil {
		t.answered = true
	}
}

// next are the addresses to ask, of which the next look expects an answer.
func (w *Watch) next() (out []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ip, t := range w.heard {
		t.asked = true
		out = append(out, ip)
	}
	return out
}

// look counts who has answered since the last look, and judges.
func (w *Watch) look() {
	w.mu.Lock()
	for _, t := range w.heard {
		t.count()
	}
	now := sight{w.hearsSome(tunnel), w.hearsSome(below)}
	w.restart(tunnel, w.sees.tunnel, now.tunnel)
	w.restart(below, w.sees.below, now.below)
	w.sees = now
	changed, suspected := w.judge(), w.doubt()
	fault := ""
	if unheard := func(t *track) bool { return t.missed >= few }; !now.tunnel && !now.below && slices.ContainsFunc(slices.Collect(maps.Values(w.heard)), unheard) {
		fault = "nobody, or nearly nobody, of those who are asked answers: this machine is cut off"
	}
	w.mu.Unlock()
	w.says(fault)
	if suspected && w.Suspected != nil {
		w.Suspected()
	}
	if changed {
		w.Changed()
	}
}

func (t *track) count() {
	switch {
	case !t.asked:
	case t.answered:
		t.ever, t.missed, t.run = true, 0, t.run+1
	default:
		t.missed, t.run = t.missed+1, 0
	}
	t.answered = false
}

func tunnel(n Node) netip.Addr { return n.Tunnel }
func below(n Node) netip.Addr  { return n.Below }

// hearsSome tells that more than a tenth is heard of those who ever were by a path. Who
// misses few answers counts as silent already: that a whole network is gone shows before
// any of its nodes is judged. The caller holds mu.
func (w *Watch) hearsSome(path func(Node) netip.Addr) bool {
	all, some := 0, 0
	for _, n := range w.nodes {
		t := w.heard[path(n)]
		if t == nil || !t.ever {
			continue
		}
		if all++; t.missed < few {
			some++
		}
	}
	return 10*some > all
}

// restart counts anew when a path is seen again: nodes do not all answer at once. The
// caller holds mu.
func (w *Watch) restart(path func(Node) netip.Addr, was, is bool) {
	if was || !is {
		return
	}
	for _, n := range w.nodes {
		if t := w.heard[path(n)]; t != nil {
			t.missed = 0
		}
	}
}

// judge compares nodes with what was said of them before. The caller holds mu.
func (w *Watch) judge() (changed bool) {
	for _, n := range w.nodes {
		was := w.silent[n.Name]
		gone, back := w.verdict(n, 0)
		if n.Witness || !was && !gone || was && !back {
			continue
		}
		changed = true
		if was {
			delete(w.silent, n.Name)
			w.Log.Info("a gateway's node answers again", "node", n.Name)
		} else {
			w.silent[n.Name] = true
			w.Log.Warn("a gateway's node does not answer; others take over", "node", n.Name, "missed", most, "pause", period)
		}
	}
	return changed
}

// doubt notes who is silent, or is after few more missed answers, and tells that somebody
// new is among them. The caller holds mu.
func (w *Watch) doubt() (more bool) {
	was := w.doubts
	w.doubts = map[string]bool{}
	for _, n := range w.nodes {
		if gone, _ := w.verdict(n, most-few); !n.Witness && (gone || w.silent[n.Name]) {
			w.doubts[n.Name] = true
			more = more || !was[n.Name]
		}
	}
	return more
}

// lost tells that an address is silent for so long that it counts, or does after some more
// missed answers.
func (t *track) lost(more int) bool {
	if t == nil {
		return false
	}
	missed := t.missed + more
	return missed >= steady || t.ever && missed >= most
}

// verdict tells of a node that its silence is its own, after some more missed answers, and
// that it answers steadily. The tunnel is what pods use, and counts. Where no tunnel leads
// anywhere the fault may be this machine's: then the node counts as gone only if it is
// silent below too, where others are heard. The caller holds mu.
func (w *Watch) verdict(n Node, more int) (gone, back bool) {
	through, under := w.heard[n.Tunnel], w.heard[n.Below]
	gone = w.sees.below && under.lost(more)
	if through != nil {
		gone = through.lost(more) && (w.sees.tunnel || gone)
	}
	if through == nil || !through.ever {
		return gone, !gone && under != nil && under.run >= steady
	}
	return gone, through.run >= steady
}

// says tells once that silence means nothing, and once that it does again.
func (w *Watch) says(fault string) {
	w.mu.Lock()
	was := w.fault
	w.fault = fault
	w.mu.Unlock()
	switch {
	case was == fault:
	case fault != "":
		w.Log.Warn("whether gateways' nodes answer cannot be told; who is gateway stays, but for what Nodes' conditions say", "why", fault)
	default:
		w.Log.Info("whether gateways' nodes answer can be told again")
	}
}
