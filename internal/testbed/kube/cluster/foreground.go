package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// foreground is a test that a person runs: the testbed asks of it what it asks
// of a test. Methods that it does not have are not called by the testbed.
type foreground struct {
	testing.TB

	mu     sync.Mutex
	failed bool
	ends   []func()
}

// run calls f and then, in reverse order, what was registered by Cleanup; it
// tells whether anything failed.
func (f *foreground) run(body func()) bool {
	f.goroutine(body)
	for {
		f.mu.Lock()
		ends := f.ends
		f.ends = nil
		f.mu.Unlock()
		if len(ends) == 0 {
			return f.Failed()
		}
		for _, end := range slices.Backward(ends) {
			f.goroutine(end)
		}
	}
}

// goroutine calls f where FailNow may end it.
func (f *foreground) goroutine(body func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body()
	}()
	<-done
}

func (f *foreground) Helper()                  {}
func (f *foreground) Name() string             { return "cluster" }
func (f *foreground) Context() context.Context { return context.Background() }

func (f *foreground) Cleanup(end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = append(f.ends, end)
}

func (f *foreground) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *foreground) Fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = true
}

func (f *foreground) FailNow() {
	f.Fail()
	runtime.Goexit()
}

func (f *foreground) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

func (f *foreground) Logf(format string, args ...any) { f.Log(fmt.Sprintf(format, args...)) }

func (f *foreground) Errorf(format string, args ...any) {
	f.Logf(format, args...)
	f.Fail()
}

func (f *foreground) Fatalf(format string, args ...any) {
	f.Logf(format, args...)
	f.FailNow()
}
