// Package nodeloop is the command `fairlead node`: its flags. What the node loop
// does is package loop's; `fairlead up` runs the same in its own process.
package nodeloop

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/node/gc"
	"github.com/fairlead/fairlead/internal/node/loop"
)

// Command is `fairlead node`.
func Command(version string) *cobra.Command {
	o := loop.Config{Version: version}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the pods of a folder, a URL or an API server over any container runtime, without kubelet",
		Long: `Run the pods that stand as files in a folder, behind a URL, or that an API server
binds to this node, over any runtime that serves CRI. A pod that is changed or
removed there is changed or ended. The sources may be used together.

With an API server the node registers itself, renews its lease, and writes its
pods' status; static pods have mirror pods there. It needs a user
system:node:NAME of the group system:nodes. With --client-ca-file, kubectl's logs,
exec, attach, cp and port-forward work as with kubelet.

SIGTERM leaves every pod as it is; whoever is started next goes on with them.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return loop.Run(cmd.Context(), o, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Pods, "pod-dir", "", "folder of pods, YAML or JSON")
	f.StringVar(&o.URL, "url", "", "URL of a Pod or PodList")
	f.StringArrayVar(&o.Headers, "url-header", nil, "header that is sent with questions to --url, \"NAME: VALUE\" (repeatable)")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that leads to the API server whose pods of this node are run")
	f.StringVar(&o.Runtime, "runtime", "unix:///run/containerd/containerd.sock", "the runtime's CRI endpoint")
	f.StringVar(&o.Name, "node-name", "", "name of this node, a part of its pods' names (default: the host's)")
	f.StringVar(&o.IP, "node-ip", "", "address of this node, for pods that ask for it (default: the one that leads to the API server, else the machine's own)")
	f.StringVar(&o.RootDir, "root-dir", "/var/lib/fairlead/node", "volumes and other files of pods")
	f.StringVar(&o.LogDir, "log-dir", "/var/log/pods", "logs of containers")
	f.StringVar(&o.CgroupRoot, "cgroup-root", "", "cgroup of all pods, with the cgroupfs driver (default: the runtime's)")
	f.StringVar(&o.Listen, "listen", "unix:///run/fairlead/node.sock", "the socket of `fairlead logs`, `exec` and `describe pod`, for root alone; empty for none")
	f.StringVar(&o.HTTP, "http", "", "address to serve pods and logs on, for anybody, ADDRESS:PORT (default: none)")
	kubeletFlags(f, &o.Kubelet)
	f.StringVar(&o.ResolvConf, "resolv-conf", "/etc/resolv.conf", "name servers of pods without a policy of their own")
	f.StringArrayVar(&o.DNS, "cluster-dns", nil, "name server of pods with DNS policy ClusterFirst (repeatable)")
	f.StringVar(&o.Domain, "cluster-domain", "", "search domain of pods with DNS policy ClusterFirst")
	diskFlags(f, &o)
	return cmd
}

func diskFlags(f *pflag.FlagSet, o *loop.Config) {
	f.IntVar(&o.ImageHigh, "image-gc-high", gc.ImageHigh, "use of the images' file system, in %, from which on unused images are removed (0: never)")
	f.IntVar(&o.ImageLow, "image-gc-low", gc.ImageLow, "use of the images' file system, in %, at which that ends")
	f.DurationVar(&o.ImageMinAge, "image-gc-min-age", gc.ImageMinAge, "how long an image has to have been there")
	f.DurationVar(&o.ImagePeriod, "image-gc-period", gc.ImagePeriod, "how often that is looked after")
	f.Int64Var(&o.LogSize, "log-max-size", gc.LogSize, "bytes of a container's log from which on a new file is begun")
	f.IntVar(&o.LogFiles, "log-max-files", gc.LogFiles, "files that a container's log may have")
}

func kubeletFlags(f *pflag.FlagSet, k *loop.Kubelet) {
	f.StringVar(&k.Address, "kubelet-address", ":10250", "ADDRESS:PORT where the API server of --kubeconfig reaches this node; empty for none")
	f.StringVar(&k.ClientCA, "client-ca-file", "", "authorities of the client certificates that are believed there (default: tokens alone are)")
	f.StringVar(&k.CertFile, "tls-cert-file", "", "serving certificate there (default: one that the node signs itself)")
	f.StringVar(&k.KeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
}
