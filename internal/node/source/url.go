package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/source/folder"
)

const (
	// URLPeriod is how often a URL is asked.
	URLPeriod = 20 * time.Second
	// answerLimit bounds one question.
	answerLimit = 10 * time.Second
)

// URLConfig says where pods are asked for.
type URLConfig struct {
	Static
	URL    string
	Header http.Header   // sent with each question
	Period time.Duration // 0 is URLPeriod
	Client *http.Client  // nil is http.DefaultTransport
	Log    *slog.Logger
}

// URL reads pods from one address: a Pod, a PodList or List, or several
// documents. An answer that cannot be had or understood is told as a Problem;
// what the last good one said stays in force.
type URL struct {
	cfg    URLConfig
	client http.Client
	tell   folder.Teller

	mu       sync.Mutex
	data     []byte // the last answer
	good     []declared
	known    bool // there was a good answer, or an empty one
	refused  []Problem
	unknown  map[types.UID][]string
	problems []Problem
}

// NewURL asks nothing yet.
func NewURL(cfg URLConfig) *URL {
	if cfg.Period == 0 {
		cfg.Period = URLPeriod
	}
	u := &URL{cfg: cfg, tell: folder.Teller{Log: cfg.Log}}
	if cfg.Client != nil {
		u.client = *cfg.Client
	}
	u.client.Timeout = answerLimit
	return u
}

// Problems are those of the last question.
func (u *URL) Problems() []Problem {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Problem(nil), u.problems...)
}

// Warnings name the fields of a pod that no pod has, with URL and line.
func (u *URL) Warnings(uid types.UID) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unknown[uid]
}

// Run asks until ctx ends and sends all pods to out when they changed, and for
// the first answer. The error is that of ctx.
func (u *URL) Run(ctx context.Context, out chan<- []*v1.Pod) error {
	tick := time.NewTicker(u.cfg.Period)
	defer tick.Stop()
	for {
		pods, changed, _ := u.Ask(ctx) // an error is among the Problems
		if changed {
			if err := send(ctx, out, pods); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Ask asks once. It returns the pods in force, which are not to be changed, and
// whether they are to be sent: they changed, or it is the first time that
// anything is known. An empty answer is an error; it removes nothing, but if it
// is the first it says that there are no pods.
func (u *URL) Ask(ctx context.Context) ([]*v1.Pod, bool, error) {
	data, err := u.get(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return u.pods(), false, ctx.Err()
	}
	if err != nil {
		u.settle([]Problem{{Where: u.cfg.URL, Reason: err.Error()}})
		return u.pods(), false, fmt.Errorf("ask %s: %w", u.cfg.URL, err)
	}
	if len(data) == 0 {
		changed := !u.known
		u.known = true
		u.settle([]Problem{{Where: u.cfg.URL, Reason: "the answer is empty"}})
		return u.pods(), changed, fmt.Errorf("ask %s: the answer is empty", u.cfg.URL)
	}
	return u.take(data)
}

// take makes an answer's pods the ones in force.
func (u *URL) take(data []byte) ([]*v1.Pod, bool, error) {
	if u.data != nil && bytes.Equal(u.data, data) {
		u.settle(u.refused)
		return u.pods(), false, nil
	}
	u.data = data
	from := folder.Parse(u.cfg.URL, data, u.cfg.Kinds())
	p := parse(from, from.Of(folder.Pod), u.cfg.Static, false)
	u.refused, u.unknown = p.all(), p.unknown
	u.settle(u.refused)
	err := p.refusal()
	if err != nil {
		err = fmt.Errorf("read %s: %w", u.cfg.URL, err)
	}
	now := p.over(u.good)
	same := func(a, b declared) bool { return reflect.DeepEqual(a.pod, b.pod) }
	if err != nil && slices.EqualFunc(now, u.good, same) { // it tells of nothing new
		return u.pods(), false, err
	}
	u.good, u.known = now, true
	return u.pods(), true, err
}

// pods are those in force.
func (u *URL) pods() []*v1.Pod {
	var out []*v1.Pod
	for _, d := range u.good {
		out = append(out, d.pod)
	}
	return out
}

func (u *URL) settle(problems []Problem) {
	u.problems = problems
	u.tell.Tell(u, problems)
}

func (u *URL) get(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header = u.cfg.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	resp, err := u.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, folder.MaxFile))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, errors.New(resp.Status)
	case len(data) >= folder.MaxFile:
		return nil, fmt.Errorf("the answer has %d bytes or more", folder.MaxFile)
	}
	return data, nil
}
