package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// kubeOVNVersion is the version Kube-OVN's conf list carries; its plugin makes
// the CNI result itself, ours is only the record's.
const kubeOVNVersion = "0.3.1"

// serveKubeOVNAdd answers POST /api/v1/add of Kube-OVN's plugin: 200 with a
// response, 400 for a bad request, 500 for a failure (sdn.md, section 1). That
// plugin sends no acknowledgement: an answer that was written is delivered.
func (s *Server) serveKubeOVNAdd(w http.ResponseWriter, r *http.Request) {
	s.drainIntents(r.Context())
	req, err := s.decodeKubeOVN(w, r, core.Add)
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusBadRequest, err)
		return
	}
	a, err := s.Engine.Add(r.Context(), req)
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusInternalServerError, err)
		return
	}
	answer, err := cniconf.KubeOVNResponse(a.Record.Links)
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		s.refuseKubeOVN(w, req, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err == nil && http.NewResponseController(w).Flush() == nil {
		s.Engine.Delivered(req.Key)
	}
}

// serveKubeOVNDel answers POST /api/v1/del: 204 when nothing is left.
func (s *Server) serveKubeOVNDel(w http.ResponseWriter, r *http.Request) {
	req, err := s.decodeKubeOVN(w, r, core.Del)
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
	writeJSON(w, status, cni.KubeOVNResponse{Err: err.Error()})
}

func (s *Server) decodeKubeOVN(w http.ResponseWriter, r *http.Request, op core.Op) (core.Request, error) {
	var in cni.KubeOVNRequest
	if err := readJSON(w, r, &in); err != nil {
		return core.Request{}, err
	}
	req := core.Request{
		Op: op, Key: core.Key{Container: in.ContainerID, IfName: in.IfName}, Netns: in.NetNs,
		Pod: core.Pod{Namespace: in.PodNamespace, Name: in.PodName},
		Conf: core.Conf{
			CNIVersion: kubeOVNVersion, Name: "kube-ovn", Type: in.CNIType, Provider: in.Provider, DNS: core.DNS(in.DNS),
		},
	}
	if req.Pod.Name == "" || req.Pod.Namespace == "" {
		return req, core.Errorf(core.CodeDecode, "pod_name and pod_namespace are obligatory")
	}
	if !core.OwnType(in.CNIType) {
		return req, core.Errorf(core.CodeConfig, "cni_type %q: addresses for other plugins are not served on this path", in.CNIType)
	}
	if in.DeviceID != "" || in.VhostUserSocketVolumeName != "" {
		return req, core.Errorf(core.CodeDevice, "deviceID and vhost_user_socket_volume_name need a driver this node has not")
	}
	var err error
	if req.Conf.Routes, err = kubeOVNRoutes(in.Routes); err != nil {
		return req, err
	}
	if err := s.knownProvider(r, in.Provider); err != nil {
		return req, err
	}
	return req, validate(req)
}

// knownProvider refuses a provider that no Subnet has; the default one always
// exists.
func (s *Server) knownProvider(r *http.Request, provider string) error {
	if provider == "" || provider == "ovn" {
		return nil
	}
	subnets, err := s.View.Source.Subnets(r.Context())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(subnets, func(n core.Subnet) bool { return n.Provider == provider }) {
		return nil
	}
	return core.Errorf(core.CodeConfig, "provider %q: no Subnet has it", provider)
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
