package kube

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// virtualMachines are KubeVirt's.
var virtualMachines = schema.GroupVersionResource{Group: v1.MachineGroup, Version: "v1", Resource: "virtualmachines"}

// labelMachine is on a launcher pod: the machine that it runs.
const labelMachine = "vm.kubevirt.io/name"

// machines reads the virtual machines from the first question on.
type machines struct {
	cache.SharedIndexInformer
	pods  func(ctx context.Context, namespace, selector string) (*corev1.PodList, error)
	asked chan struct{} // closed with the first question
	known chan struct{} // closed when all are known, or there is no such kind
	ask   sync.Once
	know  sync.Once
}

func newMachines(to clients, failed func(error)) (*machines, error) {
	r := custom(to, virtualMachines, readMachine)
	m := &machines{SharedIndexInformer: r, asked: make(chan struct{}), known: make(chan struct{})}
	m.pods = func(ctx context.Context, namespace, selector string) (*corev1.PodList, error) {
		return to.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	}
	if err := m.SetTransform(r.keep); err != nil {
		return nil, fmt.Errorf("read %s: %w", virtualMachines.Resource, err)
	}
	if err := m.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) { // KubeVirt is not there (any more)
			m.know.Do(func() { close(m.known) })
			return
		}
		failed(err)
	}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", virtualMachines.Resource, err)
	}
	return m, nil
}

func readMachine(u *unstructured.Unstructured) object.Machine {
	return object.Machine{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Ending: u.GetDeletionTimestamp() != nil}
}

// run reads the objects and their changes, once somebody asks, until ctx ends.
func (m *machines) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.asked:
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), m.HasSynced) {
		m.know.Do(func() { close(m.known) })
	}
	wg.Wait()
}

// follow tells of them once they are known, and then of their changes, until ctx ends.
func (m *machines) follow(ctx context.Context, changed func(object.Key)) error {
	tell := func(o any) {
		if name, err := cache.DeletionHandlingObjectToName(o); err == nil {
			changed(object.KindMachine.Named(name.Namespace, name.Name))
		}
	}
	handle, err := m.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell})
	if err != nil {
		return fmt.Errorf("follow %s: %w", virtualMachines.Resource, err)
	}
	context.AfterFunc(ctx, func() { _ = m.RemoveEventHandler(handle) }) // it fails when the informer has ended
	go func() {
		select {
		case <-ctx.Done():
		case <-m.known:
			changed(object.Key{Kind: object.KindMachine})
		}
	}()
	return nil
}

// Get implements object.Machines.
func (m *machines) Get(namespace, name string) (vm object.Machine, there, known bool) {
	m.ask.Do(func() { close(m.asked) })
	vm, there = lister[object.Machine]{m}.Get(namespace, name)
	select {
	case <-m.known:
		return vm, there, true
	default:
		return vm, there, false
	}
}

// Launchers implements object.Machines.
func (m *machines) Launchers(ctx context.Context, namespace, machine string) (out []object.Pod, err error) {
	select {
	case <-m.asked:
	default:
		return nil, nil
	}
	all, err := m.pods(ctx, namespace, labelMachine)
	if err != nil {
		return nil, fmt.Errorf("read the launchers of VirtualMachine %s/%s: %w", namespace, machine, err)
	}
	for i := range all.Items {
		if p := readPod(&all.Items[i]); p.Owner.Kind == object.OwnerInstance && p.Owner.Name == machine {
			out = append(out, p)
		}
	}
	return out, nil
}
