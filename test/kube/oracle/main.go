// Command oracle is kubelet's own package of pod sources and their merge
// (k8s.io/kubernetes/pkg/kubelet/config) behind a pipe, for the differential
// test of internal/node: it reads one Step per line of JSON and answers with
// the updates that a kubelet would hear, one Answer per line.
//
// The package's sources run on timers; the oracle calls what the timers call,
// so that a step is one list of the files, one question of the URL or one list
// of the API server, and nothing has to be waited for.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"time"
	"unsafe"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Step is one thing that happens.
type Step struct {
	// Do is new (a kubelet is started: Path, URL and Node), file (the files
	// are listed), http (the URL is asked) or api (the API server's list is
	// Pods).
	Do   string
	Path string
	URL  string
	Node string
	Pods []*v1.Pod
}

// Answer is what the kubelet hears, and what it logs.
type Answer struct {
	Updates []Update
	Error   string
	Log     []string
	Seen    bool // all sources have spoken
}

// Update is kubelet's PodUpdate with the operation's name.
type Update struct {
	Op     string
	Source string
	Pods   []*v1.Pod
}

// update has the layout of the package's sourceUpdate.
type update struct{ Pods []*v1.Pod }

// sourceURL has the layout of the package's type, which no function returns.
type sourceURL struct {
	url         string
	header      http.Header
	nodeName    types.NodeName
	updates     chan<- update
	data        []byte
	failureLogs int
	client      *http.Client
}

//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node types.NodeName, period time.Duration, updates chan<- update) unsafe.Pointer

//go:linkname listConfig k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).listConfig
func listConfig(s unsafe.Pointer, logger klog.Logger) error

//go:linkname extractFromURL k8s.io/kubernetes/pkg/kubelet/config.(*sourceURL).extractFromURL
func extractFromURL(s *sourceURL, logger klog.Logger) error

//go:linkname merge k8s.io/kubernetes/pkg/kubelet/config.(*podStorage).Merge
func merge(s unsafe.Pointer, ctx context.Context, source string, u update) error

// kubelet is the part of a kubelet that hears of pods.
type kubelet struct {
	pods  *config.PodConfig
	lists chan update
	files unsafe.Pointer
	url   *sourceURL
}

// observer does nothing with the time at which a pod was first seen.
type observer struct{}

func (observer) ObservedPodOnWatch(*v1.Pod, time.Time) {}

func newKubelet(ctx context.Context, s Step) *kubelet {
	k := &kubelet{pods: config.NewPodConfig(&record.FakeRecorder{}, observer{}), lists: make(chan update, 4)}
	for _, source := range []string{kubetypes.FileSource, kubetypes.HTTPSource, kubetypes.ApiserverSource} {
		k.pods.Channel(ctx, source)
	}
	node := types.NodeName(s.Node)
	k.files = newSourceFile(s.Path, node, time.Hour, k.lists)
	k.url = &sourceURL{url: s.URL, nodeName: node, updates: k.lists, client: &http.Client{Timeout: 10 * time.Second}}
	return k
}

// storage is the merger behind the channels.
func (k *kubelet) storage() unsafe.Pointer {
	return reflect.ValueOf(k.pods).Elem().FieldByName("pods").UnsafePointer()
}

func (k *kubelet) do(ctx context.Context, s Step) Answer {
	var err error
	switch s.Do {
	case kubetypes.FileSource:
		err = listConfig(k.files, klog.Background())
	case kubetypes.HTTPSource:
		err = extractFromURL(k.url, klog.Background())
	case kubetypes.ApiserverSource:
		k.lists <- update{Pods: s.Pods}
	}
	var a Answer
	if err != nil {
		a.Error = err.Error()
	}
	for len(k.lists) > 0 {
		if err := merge(k.storage(), ctx, s.Do, <-k.lists); err != nil {
			a.Error = err.Error()
		}
	}
	for len(k.pods.Updates()) > 0 {
		u := <-k.pods.Updates()
		a.Updates = append(a.Updates, Update{Op: opName(u.Op), Source: u.Source, Pods: u.Pods})
	}
	a.Log, said = said, nil
	a.Seen = k.pods.SeenAllSources(sets.New(kubetypes.FileSource, kubetypes.HTTPSource, kubetypes.ApiserverSource))
	return a
}

func opName(op kubetypes.PodOperation) string {
	return map[kubetypes.PodOperation]string{kubetypes.ADD: "ADD", kubetypes.DELETE: "DELETE", kubetypes.REMOVE: "REMOVE",
		kubetypes.UPDATE: "UPDATE", kubetypes.RECONCILE: "RECONCILE"}[op]
}

func run(ctx context.Context) error {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	var k *kubelet
	for in.More() {
		var s Step
		if err := in.Decode(&s); err != nil {
			return err
		}
		if s.Do == "new" {
			k = newKubelet(ctx, s)
			continue
		}
		if k == nil {
			return fmt.Errorf("step %q before new", s.Do)
		}
		if err := out.Encode(k.do(ctx, s)); err != nil {
			return err
		}
	}
	return nil
}

// said is what kubelet has logged since the last answer: its sources tell
// nobody else why a file was left out.
var said []string

func main() {
	klog.SetLogger(funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	// As kubelet does at its start.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
