package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// kubeOVNVersion is the version Kube-OVN's conf list carries; its plugin makes
// the CNI result itself, ours is only the record's.
const kubeOVNVersion = "0.3.1"

// serveKubeOVNAdd answers POST /api/v1/add of Kube-OVN's plugin: 200 with a
// response, 400 for a bad request, 500 for a failure (sdn.md, section 1). That
// plugin sends no acknowledgement: an answer that was written is delivered.
func (s *Server) serveKubeOVNAdd(w http.ResponseWriter, r *http.Request) {
	called := s.called(0)
	req, err := s.decodeKubeOVN(r, core.Add)
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusBadRequest, err)
		return
	}
	req.Called = called
	a, err := s.add(r.Context(), req)
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusInternalServerError, err)
		return
	}
	answer, err := cniconf.KubeOVNResponse(a.Record.Links)
	if req.Conf.AddressesOnly() {
		answer.PodNicName = "" // whose addresses these are makes the interface
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err == nil && http.NewResponseController(w).Flush() == nil && req.Token == "" {
		s.Engine.Delivered(req.Key)
	}
}

// serveKubeOVNDel answers POST /api/v1/del: 204 when nothing is left.
func (s *Server) serveKubeOVNDel(w http.ResponseWriter, r *http.Request) {
	req, err := s.decodeKubeOVN(r, core.Del)
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusBadRequest, err)
		return
	}
	if err := s.Engine.Del(r.Context(), req); err != nil {
		s.refuseKubeOVN(w, req, http.StatusInternalServerError, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) refuseKubeOVN(w http.ResponseWriter, req core.Request, status int, err error) {
	s.logFailure(req, err)
	writeJSON(w, status, cni.KubeOVNResponse{Err: s.Shell.In(err.Error())})
}

// decodeKubeOVN reads either call. As with our own plugin a DEL needs its key
// and nothing else.
func (s *Server) decodeKubeOVN(r *http.Request, op core.Op) (core.Request, error) {
	var in cni.KubeOVNRequest
	if err := readJSON(r, &in); err != nil {
		return core.Request{}, err
	}
	req, err := DecodeKubeOVN(in, op)
	req.Token = s.tokenOf(r.Context()) // this protocol has none
	if err == nil && op == core.Add {
		req.Conf.Provider, err = s.knownProvider(r, in)
	}
	return req, err
}

// DecodeKubeOVN checks a call of Kube-OVN's plugin and turns it into a request.
func DecodeKubeOVN(in cni.KubeOVNRequest, op core.Op) (core.Request, error) {
	req := core.Request{
		Op: op, Key: core.Key{Container: in.ContainerID, IfName: in.IfName}, Netns: in.NetNs,
		Pod: core.Pod{Namespace: in.PodNamespace, Name: in.PodName},
		Conf: core.Conf{
			CNIVersion: kubeOVNVersion, Name: "kube-ovn", Type: in.CNIType, Provider: in.Provider, DNS: core.DNS(in.DNS),
		},
	}
	if err := validateKey(req.Key); err != nil {
		return req, err
	}
	err := validateKubeOVN(&req, in)
	if op != core.Del {
		return req, err
	}
	if validateNetns(req.Netns) != nil {
		req.Netns = ""
	}
	return req, nil
}

func validateKubeOVN(req *core.Request, in cni.KubeOVNRequest) error {
	if req.Pod.Name == "" || req.Pod.Namespace == "" {
		return core.Errorf(core.CodeDecode, "pod_name and pod_namespace are obligatory")
	}
	if err := validatePod(req.Pod); err != nil {
		return err
	}
	if in.CNIType == "" {
		return core.Errorf(core.CodeDecode, "cni_type is obligatory")
	}
	if in.DeviceID != "" || in.VhostUserSocketVolumeName != "" {
		return core.Errorf(core.CodeDevice, "deviceID and vhost_user_socket_volume_name need a driver this node has not")
	}
	var err error
	if req.Conf.Routes, err = kubeOVNRoutes(in.Routes); err != nil {
		return err
	}
	return validateNetns(req.Netns)
}

// knownProvider is the Subnets' name of the provider, which may come with the
// interface behind it where a pod has the same network twice (sdn.md, section
// 2). One that no Subnet has is refused; the default one always exists.
func (s *Server) knownProvider(r *http.Request, in cni.KubeOVNRequest) (string, error) {
	subnets, err := s.View.Source.Subnets(r.Context())
	if err != nil {
		return "", err
	}
	for _, provider := range []string{in.Provider, strings.TrimSuffix(in.Provider, "."+in.IfName)} {
		if provider == "" || provider == "ovn" || slices.ContainsFunc(subnets, func(n core.Subnet) bool { return n.Provider == provider }) {
			return provider, nil
		}
	}
	return "", core.Errorf(core.CodeConfig, "provider %q: no Subnet has it", in.Provider)
}

func kubeOVNRoutes(in []cni.KubeOVNRoute) ([]core.Route, error) {
	var out []core.Route
	for _, r := range in {
		dst, err1 := netip.ParsePrefix(r.Destination)
		var gw netip.Addr
		var err2 error
		if r.Gateway != "" {
			gw, err2 = netip.ParseAddr(r.Gateway)
		}
		if err := errors.Join(err1, err2); err != nil {
			return nil, core.Errorf(core.CodeConfig, "routes: %w", err)
		}
		out = append(out, core.Route{Dst: dst, GW: gw})
	}
	return out, nil
}
