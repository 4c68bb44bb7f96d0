package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// watched is what a tracker reads of an object.
type watched struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

// annotated tells that a pod has its addresses.
func annotated(o watched) bool { return o.Metadata.Annotations["ovn.kubernetes.io/routed"] == "true" }

// ready tells that an object's condition Ready is True.
func ready(o watched) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// tracker notes when objects became what they should be, by a watch.
type tracker struct {
	api  *api
	path string
	done func(watched) bool

	mu    sync.Mutex
	body  io.Closer            // of the present watch
	at    map[string]time.Time // by name
	news  chan struct{}        // closed with the next note
	ended bool
	err   error // why there is no news any more
}

// track watches the objects of a path from now on.
func (a *api) track(path string, done func(watched) bool) (*tracker, error) {
	out, err := a.do(http.MethodGet, path+"?limit=1", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, err
	}
	t := &tracker{api: a, path: path, done: done, at: map[string]time.Time{}, news: make(chan struct{})}
	body, err := t.open("&resourceVersion=" + list.Metadata.ResourceVersion)
	if err != nil {
		return nil, err
	}
	go t.follow(body)
	return t, nil
}

// open begins a watch; without a version it begins with all that is there.
func (t *tracker) open(from string) (io.Reader, error) {
	resp, err := t.api.open(http.MethodGet, t.path+"?watch=1"+from, "", nil)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.body = resp.Body; t.ended {
		return nil, errors.Join(io.EOF, resp.Body.Close())
	}
	return resp.Body, nil
}

// follow reads one watch after another: the server ends one whose reader is slow.
func (t *tracker) follow(body io.Reader) {
	for {
		t.read(body)
		t.mu.Lock()
		ended := t.ended
		t.mu.Unlock()
		if ended {
			return
		}
		var err error
		if body, err = t.open(""); err != nil {
			t.note("", err)
			return
		}
	}
}

// read notes until a watch ends.
func (t *tracker) read(from io.Reader) {
	for d := json.NewDecoder(from); ; {
		var event struct {
			Type   string
			Object watched
		}
		if d.Decode(&event) != nil || event.Type == "ERROR" {
			return
		}
		if event.Type != "DELETED" && t.done(event.Object) {
			t.note(event.Object.Metadata.Name, nil)
		}
	}
}

// note tells who waits that an object is what it should be, or that nothing comes
// any more.
func (t *tracker) note(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = err; err == nil && t.at[name].IsZero() {
		t.at[name] = time.Now()
	}
	close(t.news)
	t.news = make(chan struct{})
}

// await waits until an object is what it should be, and gives since when.
func (t *tracker) await(name string) (time.Time, error) {
	late := time.NewTimer(5 * patience)
	defer late.Stop()
	for {
		t.mu.Lock()
		at, news, err := t.at[name], t.news, t.err
		t.mu.Unlock()
		switch {
		case !at.IsZero():
			return at, nil
		case err != nil:
			return at, err
		}
		select {
		case <-news:
		case <-late.C:
			return at, fmt.Errorf("%s is not ready after %s", name, 5*patience)
		}
	}
}

func (t *tracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	_ = t.body.Close()
}
