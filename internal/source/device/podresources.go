package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	// answerLimit bounds kubelet's answer, in bytes. A List of a full node can
	// exceed gRPC's own limit of 4 MiB (kubelet's own clients take 16 MiB).
	answerLimit = 16 << 20
	// askLimit is how long kubelet is waited for: an ADD has 50 s in all.
	askLimit = 10 * time.Second
	// Kubelet refuses what exceeds 100 questions a second, from all askers
	// together (apis/podresources, DefaultQPS): many pods that start at once
	// meet that limit. maxAttempts here needs callAttempts to be in force.
	callAttempts = 10
	whenCrowded  = `{"methodConfig":[{"name":[{"service":"v1.PodResourcesLister"}],"retryPolicy":{"maxAttempts":10,` +
		`"initialBackoff":"0.05s","maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`
)

// errSilent: nobody serves kubelet's socket.
var errSilent = errors.New("kubelet does not serve its podresources socket")

// ask has kubelet list the pod's devices.
func (k *Kubelet) ask(caller context.Context, p core.Pod) (res *podresources.PodResources, err error) {
	ctx, stop := context.WithTimeout(caller, askLimit)
	defer stop()
	err = k.dial(func(c podresources.PodResourcesListerClient) (err error) {
		res, err = get(ctx, c, p)
		return err
	})
	if err != nil && !errors.Is(err, errSilent) {
		return nil, core.WithCode(codeOf(err), "devices of pod "+p.String()+" at "+k.socket, err)
	}
	return res, err
}

// dial asks kubelet one question. A connection serves one: kubelet makes its socket anew
// at each start, and questions are few. errSilent: nobody serves it.
func (k *Kubelet) dial(question func(podresources.PodResourcesListerClient) error) error {
	var dialled atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerLimit)),
		grpc.WithDefaultServiceConfig(whenCrowded), grpc.WithMaxCallAttempts(callAttempts),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", k.socket)
			dialled.Store(&err)
			return c, err
		}))
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "kubelet", err)
	}
	defer func() { _ = conn.Close() }()
	err = question(podresources.NewPodResourcesListerClient(conn))
	if d := dialled.Load(); err != nil && d != nil && silent(*d) {
		return fmt.Errorf("%w: %w", errSilent, *d)
	}
	return err
}

// silent tells the errors of a socket that nobody serves.
func silent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR)
}

// get asks for one pod. Kubelets before 1.34 do not know Get, or have it
// switched off, which they tell in words only, as they do that a pod is
// unknown: then the list of all pods decides.
func get(ctx context.Context, c podresources.PodResourcesListerClient, p core.Pod) (*podresources.PodResources, error) {
	one, err := c.Get(ctx, &podresources.GetPodResourcesRequest{PodName: p.Name, PodNamespace: p.Namespace})
	if err == nil {
		return one.GetPodResources(), nil
	}
	if said := status.Code(err); said != codes.Unimplemented && said != codes.Unknown {
		return nil, err
	}
	all, lerr := c.List(ctx, &podresources.ListPodResourcesRequest{})
	if lerr != nil {
		return nil, lerr
	}
	for _, r := range all.GetPodResources() {
		if r.GetName() == p.Name && r.GetNamespace() == p.Namespace {
			return r, nil
		}
	}
	return nil, err
}

// codeOf: what kubelet refuses stays refused, what it did not answer may be
// asked again.
func codeOf(err error) uint {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return core.CodeTryAgain
	}
	return core.CodeDevice
}
