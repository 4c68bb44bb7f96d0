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
	body io.Closer

	mu   sync.Mutex
	at   map[string]time.Time // by name
	news chan struct{}        // closed with the next note
	err  error                // why there is no news any more
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
	resp, err := a.open(http.MethodGet, path+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, "", nil) //nolint:bodyclose // tracker.close does
	if err != nil {
		return nil, err
	}
	t := &tracker{body: resp.Body, at: map[string]time.Time{}, news: make(chan struct{})}
	go t.read(resp.Body, done)
	return t, nil
}

// read notes until the watch ends.
func (t *tracker) read(from io.Reader, done func(watched) bool) {
	for d := json.NewDecoder(from); ; {
		var event struct {
			Type   string
			Object watched
		}
		err := d.Decode(&event)
		if err == nil && event.Type == "ERROR" {
			err = errors.New("the watch ended with an error")
		}
		if err == nil && (event.Type == "DELETED" || !done(event.Object)) {
			continue
		}
		t.mu.Lock()
		if t.err = err; err == nil && t.at[event.Object.Metadata.Name].IsZero() {
			t.at[event.Object.Metadata.Name] = time.Now()
		}
		close(t.news)
		t.news = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
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

func (t *tracker) close() { _ = t.body.Close() }
