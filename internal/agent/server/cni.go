package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// serveCNI answers one call of the plugin. The answer goes out on the raw
// connection, because the plugin's acknowledgement comes after it.
func (s *Server) serveCNI(w http.ResponseWriter, r *http.Request) {
	var in cni.Request
	if err := readJSON(r, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if in.Token == "" {
		in.Token = s.tokenOf(r.Context())
	}
	called := s.called(in.Boottime)
	req, err := Decode(in)
	var out []byte
	if err == nil {
		req.Called = called
		out, err = s.dispatch(r, req)
	}
	answer := cni.Response{Output: out}
	if err != nil {
		s.logFailure(req, err)
		answer = cni.Response{Output: cniconf.ErrorJSON(errorVersion(in, req), err, s.Shell), Failed: true}
	}
	acknowledged := s.reply(w, answer)
	if acknowledged && req.Op == core.Add && req.Token == "" && err == nil {
		s.Engine.Delivered(req.Key)
	}
}

// called is when the caller says that it began, unless that cannot be.
func (s *Server) called(boottime int64) core.Moment {
	now := netns.Boottime()
	if at := time.Duration(boottime); at > 0 && at < now {
		now = at
	}
	return core.Moment{BootID: s.Engine.BootID, Boottime: now, Wall: time.Now()}
}

// tokenOf is the token of a plugin that the agent runs, and that did not hand on
// its environment to ours.
func (s *Server) tokenOf(ctx context.Context) string {
	cred, err := peer(ctx)
	if err != nil {
		return ""
	}
	return s.Engine.TokenOf(int(cred.Pid))
}

func (s *Server) dispatch(r *http.Request, req core.Request) ([]byte, error) {
	ctx := r.Context()
	if s.Complete != nil {
		req.Conf = s.Complete(req.Conf)
	}
	switch req.Op {
	case core.Add:
		a, err := s.add(ctx, req)
		return a.Result, err
	case core.Del:
		return nil, s.Engine.Del(ctx, req)
	case core.Check:
		return nil, s.Engine.Check(ctx, req)
	case core.GC:
		return nil, s.Engine.GC(ctx, req)
	case core.Status:
		return nil, s.Engine.Status(ctx, req)
	}
	return nil, core.Errorf(core.CodeEnv, "CNI_COMMAND %q is not known", req.Op)
}

func (s *Server) logFailure(req core.Request, err error) {
	s.Log.Warn("operation failed", "op", req.Op, "container", req.Key.Container, "ifname", req.Key.IfName,
		"pod", req.Pod, "code", core.CodeOf(err), "err", err)
}

// errorVersion is the conf's version; for a conf that could not be decoded,
// whatever version it names.
func errorVersion(in cni.Request, req core.Request) string {
	if req.Conf.CNIVersion != "" {
		return req.Conf.CNIVersion
	}
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(in.Config, &c)
	return c.CNIVersion
}

// reply sends the answer and reports whether the plugin acknowledged it.
func (s *Server) reply(w http.ResponseWriter, answer cni.Response) bool {
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.Log.Error("answer not sent: the runtime takes the call for failed", "err", err)
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(ackTimeout))
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(body))
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		return false
	}
	var ack [1]byte
	n, _ := conn.Read(ack[:])
	return n == 1 && ack[0] == cni.Ack
}

// Decode checks a plugin's call and turns it into a request. Every refusal
// names the variable or key and has its CNI code. A DEL needs only its key:
// whatever else is wrong with it is left out, for a pod that cannot be removed
// because of its configuration helps nobody (reliability.md, Faults).
func Decode(in cni.Request) (core.Request, error) {
	req := core.Request{
		Op: core.Op(in.Command), Key: core.Key{Container: in.ContainerID, IfName: in.IfName},
		Netns: in.Netns, RawArgs: in.Args, Path: filepath.SplitList(in.Path), Token: in.Token,
	}
	var conf, args, key, pod, ns error
	req.Conf, conf = cniconf.Parse(in.Config)
	req.Args, args = cniconf.ParseArgs(in.Args)
	if conf == nil {
		conf = versionHas(req)
	}
	if req.Op == core.GC || req.Op == core.Status {
		return req, first(conf, args)
	}
	if args == nil {
		args = knownArgs(req.Args)
	}
	key = validateKey(req.Key)
	req.Pod = core.Pod{Namespace: req.Args["K8S_POD_NAMESPACE"], Name: req.Args["K8S_POD_NAME"], UID: req.Args["K8S_POD_UID"]}
	if pod = validatePod(req.Pod); pod != nil {
		req.Pod = core.Pod{}
	}
	if ns = validateNetns(req.Netns); ns != nil {
		req.Netns = ""
	}
	if req.Op == core.Del {
		return req, key
	}
	return req, first(conf, args, key, pod, ns)
}

// versionHas refuses a command that the configuration's CNI version has not.
func versionHas(req core.Request) error {
	v := req.Conf.CNIVersion
	if req.Op == core.Check && !cniconf.HasCheck(v) || req.Op == core.GC && !cniconf.HasGC(v) {
		return &core.Error{Code: core.CodeVersion, Msg: "incompatible CNI version", Details: fmt.Sprintf("cniVersion %s has no %s", v, req.Op)}
	}
	return nil
}

// argKeys are the keys of CNI_ARGS that we or the plugins inside the agent carry
// out; Kubernetes' runtimes tell the sandbox's id too.
var argKeys = []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID", "IP", "MAC", "GATEWAY"}

// knownArgs refuses what nobody would carry out, unless IgnoreUnknown allows it
// (CNI conventions).
func knownArgs(args map[string]string) error {
	switch v := strings.ToLower(args["IgnoreUnknown"]); v {
	case "1", "true":
		return nil
	case "", "0", "false":
	default:
		return core.Errorf(core.CodeEnv, "CNI_ARGS: IgnoreUnknown %q is neither true nor false", v)
	}
	var unknown []string
	for key := range args {
		if key != "IgnoreUnknown" && !slices.Contains(argKeys, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return core.Errorf(core.CodeEnv, "CNI_ARGS: %s: not known; IgnoreUnknown=1 would pass over them", strings.Join(unknown, ", "))
}

// first is the first error of several.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// validateKey checks what names an attachment.
func validateKey(k core.Key) error {
	if err := utils.ValidateContainerID(k.Container); err != nil {
		return &core.Error{Code: core.CodeEnv, Msg: "CNI_CONTAINERID " + err.Msg, Details: err.Details}
	}
	if len(k.Container) > 253 {
		return core.Errorf(core.CodeEnv, "CNI_CONTAINERID is longer than 253 characters")
	}
	if err := utils.ValidateInterfaceName(k.IfName); err != nil {
		return &core.Error{Code: core.CodeEnv, Msg: "CNI_IFNAME " + err.Msg, Details: err.Details}
	}
	switch k.IfName {
	case "lo":
		return core.Errorf(core.CodeEnv, "CNI_IFNAME %q is the loopback interface", k.IfName)
	case "all", "default":
		return core.Errorf(core.CodeEnv, "CNI_IFNAME %q means every interface to sysctl", k.IfName)
	}
	return nil
}

var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	podUID    = regexp.MustCompile(`^[a-zA-Z0-9][-a-zA-Z0-9]{0,62}$`)
	procNetns = regexp.MustCompile(`^/proc/(self|thread-self|[0-9]+)(/task/[0-9]+)?/ns/net$`)
)

// validatePod checks names by Kubernetes' rules (RFC 1123); no pod at all is a
// bare container.
func validatePod(p core.Pod) error {
	if p.IsZero() {
		return nil
	}
	if p.Namespace == "" || !label.MatchString(p.Namespace) {
		return core.Errorf(core.CodeEnv, "CNI_ARGS: K8S_POD_NAMESPACE %q is not a DNS label", p.Namespace)
	}
	if len(p.Name) > 253 || !subdomain.MatchString(p.Name) {
		return core.Errorf(core.CodeEnv, "CNI_ARGS: K8S_POD_NAME %q is not a DNS subdomain", p.Name)
	}
	if p.UID != "" && !podUID.MatchString(p.UID) {
		return core.Errorf(core.CodeEnv, "CNI_ARGS: K8S_POD_UID %q is not a UID", p.UID)
	}
	return nil
}

// netnsRoots are the folders in which runtimes keep namespaces; a process's
// own is under /proc.
var netnsRoots = []string{"/run/netns/", "/var/run/netns/", "/run/docker/netns/", "/var/run/docker/netns/"}

func validateNetns(path string) error {
	if path == "" {
		return core.Errorf(core.CodeEnv, "CNI_NETNS is missing")
	}
	if path != filepath.Clean(path) {
		return core.Errorf(core.CodeNetns, "CNI_NETNS %q is not a clean absolute path", path)
	}
	if procNetns.MatchString(path) {
		return nil
	}
	for _, root := range netnsRoots {
		if strings.HasPrefix(path, root) {
			return nil
		}
	}
	return core.Errorf(core.CodeNetns, "CNI_NETNS %q is neither /proc/PID/ns/net nor below one of %s", path, strings.Join(netnsRoots, " "))
}
