package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/testbed/kube/egress"
	"github.com/fairlead/fairlead/internal/testbed/kube/pki"
)

// server is one cluster's processes and files; Cluster is a test's handle.
type server struct {
	dir    string
	o      Options
	ca     *pki.Authority
	admin  pki.Pair
	port   int
	hold   int // file descriptor of the socket that reserves the port
	etcd   *process
	egress *egress.Egress
	// control are the scheduler and the controllers, if there are any.
	control []*process

	alone sync.Mutex // Cluster.Alone

	mu        sync.Mutex
	api       *process
	links     map[*Link]struct{}
	configs   int  // kubeconfigs written so far
	nodes     int  // nodes made so far
	suspended bool // the API server has SIGSTOP
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
# The server's own requests, and the questions whether it lives.
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
`

// newServer starts etcd and the API server and waits until it is ready.
func newServer(o Options) (*server, error) {
	dir, err := os.MkdirTemp("", "flk")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, o: o, hold: -1, links: map[*Link]struct{}{}}
	if err := s.boot(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) boot() error {
	ctx, cancel := limited()
	defer cancel()
	if err := s.prepare(); err != nil {
		return fmt.Errorf("prepare the cluster: %w", err)
	}
	if err := s.startEtcd(); err != nil {
		return err
	}
	if err := s.startAPI(ctx); err != nil {
		return err
	}
	if !s.o.NoCRDs {
		if err := s.installCRDs(ctx); err != nil {
			return err
		}
	}
	if !s.o.Control {
		return nil
	}
	return s.startControl(ctx)
}

// prepare makes keys, certificates and files, and reserves the port.
func (s *server) prepare() (err error) {
	if s.ca, err = pki.New(); err != nil {
		return err
	}
	if err := s.ca.Write(s.dir); err != nil {
		return err
	}
	serving, err := s.ca.Server([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	kubelet, err := s.ca.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	if s.admin, err = s.ca.Client("kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	if err := errors.Join(serving.Write(s.dir, "apiserver"), kubelet.Write(s.dir, "kubelet-client"), s.writeTokenKey(),
		os.WriteFile(s.path("audit.yaml"), []byte(auditPolicy), 0o600)); err != nil {
		return err
	}
	if s.egress, err = egress.New(s.dir); err != nil {
		return err
	}
	if s.hold, s.port, err = reserve(); err != nil {
		return err
	}
	return writeKubeconfig(s.path("admin.kubeconfig"), s.config(s.admin))
}

// writeTokenKey makes the key that signs service accounts' tokens.
func (s *server) writeTokenKey() error {
	key, err := pki.Key()
	if err != nil {
		return err
	}
	return os.WriteFile(s.path("service-account.key"), key, 0o600)
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// reserve binds a free port of 127.0.0.1 without listening and keeps it bound,
// so that no other process gets it while the API server is down. The API
// server binds it too (SO_REUSEPORT).
func reserve() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("reserve a port: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err != nil {
		return fd, 0, fmt.Errorf("reserve a port: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fd, 0, fmt.Errorf("reserve a port: %w", err)
	}
	return fd, name.(*unix.SockaddrInet4).Port, nil
}

// startEtcd starts etcd on sockets in the cluster's folder: etcd takes only
// HOST:PORT for the name of a unix socket, so it is a file in its own folder.
func (s *server) startEtcd() error {
	bin, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("%w (run: scripts/setup test)", err)
	}
	cmd := lean(exec.Command(bin, "--name=etcd", "--data-dir="+s.path("etcd"),
		"--listen-client-urls=unix://client:0", "--advertise-client-urls=unix://client:0",
		"--listen-peer-urls=unix://peer:0", "--initial-advertise-peer-urls=unix://peer:0", "--initial-cluster=etcd=unix://peer:0",
		"--unsafe-no-fsync", "--logger=zap", "--log-level=warn", "--enable-pprof=false"))
	cmd.Dir = s.dir
	s.etcd, err = start("etcd", s.path("etcd.log"), cmd)
	return err
}

// startAPI starts the API server on its port and waits until it is ready.
func (s *server) startAPI(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api != nil {
		return errors.New("the API server runs already")
	}
	bin, err := program("kube-apiserver")
	if err != nil {
		return err
	}
	cmd := lean(exec.Command(bin, s.flags()...))
	cmd.Dir = s.dir // etcd's socket has a relative name
	if s.api, err = start("kube-apiserver", s.path("kube-apiserver.log"), cmd); err != nil {
		return err
	}
	return s.ready(ctx, s.api)
}

func (s *server) flags() []string {
	flags := []string{
		"--etcd-servers=unix://client:0",
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port), "--permit-port-sharing",
		"--endpoint-reconciler-type=none", // a cluster without pods needs no Service of its own
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true", "--profiling=false",
		"--client-ca-file=" + s.path("ca.crt"),
		"--tls-cert-file=" + s.path("apiserver.crt"), "--tls-private-key-file=" + s.path("apiserver.key"),
		"--kubelet-client-certificate=" + s.path("kubelet-client.crt"), "--kubelet-client-key=" + s.path("kubelet-client.key"),
		"--kubelet-certificate-authority=" + s.path("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--egress-selector-config-file=" + s.path("egress.yaml"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("service-account.key"), "--service-account-signing-key-file=" + s.path("service-account.key"),
		"--authorization-mode=Node,RBAC",
		"--audit-policy-file=" + s.path("audit.yaml"), "--audit-log-path=" + s.path("audit.log"),
		"--audit-log-mode=blocking", "--audit-log-maxsize=1000000", // megabytes: never a second file
		"--enable-admission-plugins=NodeRestriction",
	}
	if !s.o.ServiceAccounts && !s.o.Control {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return append(flags, s.o.Flags...)
}

// ready waits until the API server says that all its parts are up.
func (s *server) ready(ctx context.Context, p *process) error {
	client, err := rest.HTTPClientFor(s.config(s.admin))
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return until(ctx, "kube-apiserver", func() error {
		if err := errors.Join(p.ended(), s.etcd.ended()); err != nil {
			return err
		}
		return probe(ctx, client, s.url()+"/readyz")
	})
}

// probe wants status 200.
func probe(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

func (s *server) url() string { return "https://127.0.0.1:" + strconv.Itoa(s.port) }

// stopAPI ends the API server at once: a crash. Connections break.
func (s *server) stopAPI() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api != nil {
		s.api.kill()
		s.api, s.suspended = nil, false
	}
}

// suspend stops or continues the API server's process.
func (s *server) suspend(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == nil {
		return errors.New("the API server does not run")
	}
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	s.suspended = on
	return s.api.signal(sig)
}

// running tells that the API server runs and is not suspended.
func (s *server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.api != nil && !s.suspended && s.api.ended() == nil
}

// close ends everything and returns what was left over.
func (s *server) close() error {
	var errs []error
	s.mu.Lock()
	links := s.links
	s.links = map[*Link]struct{}{}
	s.mu.Unlock()
	for l := range links {
		l.close()
	}
	errs = append(errs, s.stopControl())
	if s.api != nil && !s.suspended {
		if err := s.api.ended(); err != nil {
			errs = append(errs, fmt.Errorf("by itself: %w", err))
		}
	}
	s.stopAPI()
	if s.etcd != nil {
		s.etcd.kill()
	}
	if s.egress != nil {
		s.egress.Close()
	}
	if s.hold >= 0 {
		_ = unix.Close(s.hold)
	}
	if left := mentioning(s.dir); len(left) > 0 {
		errs = append(errs, fmt.Errorf("left over by the cluster: %s", strings.Join(left, "; ")))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
