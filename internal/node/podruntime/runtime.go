// Package podruntime turns one pod into CRI calls: which sandbox and which
// containers are to be made, started or stopped so that the runtime has what
// the pod says. It keeps no list of pods and decides nothing about their life:
// who calls says when a pod is to run and when it is to end.
//
// All it remembers about a pod lies with the runtime, in labels and
// annotations, as kubelet writes them; so a new process goes on where the last
// one was killed. Only the delays between restarts are in memory.
package podruntime

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/volume"
)

// Labels and annotations of sandboxes and containers. All but the last are
// kubelet's (pkg/kubelet/types, kuberuntime/labels.go): tools know them.
const (
	labelName      = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"

	noteHash          = "io.kubernetes.container.hash"
	noteRestarts      = "io.kubernetes.container.restartCount"
	noteMessagePath   = "io.kubernetes.container.terminationMessagePath"
	noteMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	notePreStop       = "io.kubernetes.container.preStopHandler"
	noteGrace         = "io.kubernetes.pod.terminationGracePeriod"
	noteSidecar       = "fairlead.io/container.sidecar" // 1-based place among the init containers
)

// Grace periods: what a pod has that names none, and the least that any gets.
const (
	defaultGrace = 30 * time.Second
	leastGrace   = 2 * time.Second
)

// Volumes gives places of parts of volumes. It may be asked again at any time.
type Volumes interface {
	Part(of volume.Mount, p volume.Part) (string, error)
}

// Config says what pods are run with.
type Config struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient
	Objects object.Objects
	Volumes Volumes
	// Credentials are files like Docker's config.json with what registries are shown
	// beside pods' pull secrets; the first that is there counts.
	Credentials []string
	// Capacity is what a container without a limit may use of the node.
	Capacity v1.ResourceList
	// LogDir gets <ns>_<name>_<uid>/<container>/<n>.log.
	LogDir string
	// PodDir gets <uid>/etc-hosts and <uid>/containers/<name>/<n>.
	PodDir string
	// CgroupParent gets [burstable/|besteffort/]pod<uid>, the parent of the pod's
	// containers (cgroupfs), with the pod's weight and limits; "" leaves the place to
	// the runtime.
	CgroupParent string
	NodeName     string
	// NodeIP is where a pod in the node's network is asked; "" is the loopback. HostIP
	// is what pods are told as status.hostIP.
	NodeIP, HostIP string
	// ClusterDNS and ClusterDomain are for pods of DNS policy ClusterFirst;
	// without servers these get what the node itself has.
	ClusterDNS    []string
	ClusterDomain string
	ResolvConf    string // the node's own resolv.conf
	Hosts         string // the node's own hosts(5)
	Now           func() time.Time
	Log           *slog.Logger
}

// Runtime is safe for concurrent use, but for calls about one pod.
type Runtime struct {
	conf  Config
	delay *backoff
}

// New makes no call.
func New(c Config) *Runtime { return &Runtime{conf: c, delay: newBackoff(c.Now)} }

// Dial connects to a CRI endpoint, "unix:///path" or a path.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	if endpoint != "" && endpoint[0] == '/' {
		endpoint = "unix://" + endpoint
	}
	const most = 16 << 20 // bytes of an answer, as kubelet's
	c, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(bounded), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	return c, nil
}

// Bounds of calls that a runtime does not answer.
const (
	usualCall   = 2 * time.Minute
	sandboxCall = 4 * time.Minute // with all of the network; CNI's own is 220 s
)

// bounded gives each call an end. A pull has none: nobody knows how large it is.
func bounded(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error { //nolint:revive // the signature is grpc's
	most := usualCall
	switch r := req.(type) {
	case *cri.PullImageRequest:
		return call(ctx, method, req, reply, c, opts...)
	case *cri.RunPodSandboxRequest, *cri.StopPodSandboxRequest:
		most = sandboxCall
	case *cri.StopContainerRequest:
		most += time.Duration(r.GetTimeout()) * time.Second
	case *cri.ExecSyncRequest:
		most += time.Duration(r.GetTimeout()) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return call(ctx, method, req, reply, c, opts...)
}

// gone tells that the runtime does not have what it was asked for.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

// Health is what probes say of the running instance of a container.
type Health struct {
	Failed     string // why it is to be restarted; "" when it is well
	Grace      *int64 // seconds that it then has to end; nil is the pod's
	NotStarted bool   // the startup probe has not passed yet
}

// Want is a pod that is to run.
type Want struct {
	Pod    *v1.Pod
	Mounts map[string]volume.Mount // by volume
	Health map[string]Health       // by container; none means well
	// Tell, if not nil, hears at once what happens. It must not block.
	Tell func(Event)
}

// Event is something that people want to know of a pod, in kubelet's words.
type Event struct {
	Container string // its name; "" when it is about the pod
	Warning   bool
	Reason    string
	Message   string // the same again for the same thing: who counts compares it
}

// Reasons of events (kubelet's pkg/kubelet/events).
const (
	EventPulling = "Pulling"
	EventPulled  = "Pulled"
	EventCreated = "Created"
	EventStarted = "Started"
	EventKilling = "Killing"
	EventSandbox = "SandboxChanged"
	// The node's own: of a secret without which the pull was tried, and of a runtime
	// that ends a container by another signal than it was told.
	EventPullSecret = "FailedToRetrieveImagePullSecret"
	EventSignal     = "StopSignalNotCarriedOut"
)

func (w *Want) warn(container, reason, message string) {
	if w.Tell != nil {
		w.Tell(Event{Container: container, Warning: true, Reason: reason, Message: message})
	}
}

func (w *Want) tell(container, reason, message string) {
	if w.Tell != nil {
		w.Tell(Event{Container: container, Reason: reason, Message: message})
	}
}

// Reason is why something does not run, in kubelet's words.
type Reason struct{ Reason, Message string }

// Reasons of a pod or container that does not run.
const (
	ReasonSandbox       = "FailedCreatePodSandBox"
	ReasonNetwork       = "NetworkNotReady"
	ReasonConfig        = "CreateContainerConfigError"
	ReasonCreate        = "CreateContainerError"
	ReasonStart         = "RunContainerError"
	ReasonPostStart     = "PostStartHookError"
	ReasonPull          = "ErrImagePull"
	ReasonPullBackOff   = "ImagePullBackOff"
	ReasonNeverPull     = "ErrImageNeverPull"
	ReasonInvalidImage  = "InvalidImageName"
	ReasonCrashLoop     = "CrashLoopBackOff"
	ReasonInitializing  = "PodInitializing"
	ReasonBeingCreated  = "ContainerCreating"
	ReasonInspectFailed = "ImageInspectError"
)

// Error is a failure with the word for it.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Result is what Sync reached.
type Result struct {
	// Waiting says of each container that should run and does not, why.
	Waiting map[string]Reason
	// Due says of each of those when its next try is due, from now.
	Due map[string]time.Duration
	// Again is when the next look is due, from now; 0 when only a change
	// makes one due.
	Again time.Duration
}

func (r *Result) wait(name string, why Reason, due time.Duration) {
	if r.Waiting == nil {
		r.Waiting, r.Due = map[string]Reason{}, map[string]time.Duration{}
	}
	r.Waiting[name], r.Due[name] = why, due
}

func (r *Result) again(d time.Duration) {
	if r.Again == 0 || d < r.Again {
		r.Again = d
	}
}
