// Command kube is Kubernetes' own programs in one binary, for the tests: they
// share nearly all of their code, so that one file builds and links in a third
// of the time that five take. The name under which it is called says which
// program it is (a symlink), or else its first argument.
//
// It adds nothing to the programs: what they do is what a cluster of this
// version does.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// command makes the program of a name; nil for a name that is none of them.
// Each is made only when asked for: making one registers its flags with
// libraries that have a single set of them.
func command(ctx context.Context, name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(ctx)
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}

func main() {
	ctx := context.Background()
	c := command(ctx, filepath.Base(os.Args[0]))
	if c == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		c = command(ctx, os.Args[0])
	}
	if c == nil {
		fmt.Fprintln(os.Stderr, "usage: kube kube-apiserver|kube-controller-manager|kube-proxy|kube-scheduler|kubelet|kubectl [ARGUMENTS]")
		os.Exit(2)
	}
	os.Exit(cli.Run(c))
}
