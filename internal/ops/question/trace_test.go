package question_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/program"
	"github.com/fairlead/fairlead/internal/ops/question"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// Networks of the test: two Subnets, a policy, a Service, as the controller writes
// their rows.
func networks(t *testing.T) *ovn.Central {
	t.Helper()
	c := ovn.New(t, testbed.Bare(t), "127.0.0.1")
	c.Nbctl("lr-add", "ovn-cluster", "--", "ls-add", "web", "--", "ls-add", "data",
		"--", "lrp-add", "ovn-cluster", "ovn-cluster-web", "02:00:00:00:00:01", "10.16.0.1/16", "fd00:10:16::1/112",
		"--", "lrp-add", "ovn-cluster", "ovn-cluster-data", "02:00:00:00:00:02", "10.17.0.1/16", "fd00:10:17::1/112")
	for _, s := range []string{"web", "data"} {
		c.Nbctl("lsp-add", s, s+"-ovn-cluster", "--", "lsp-set-type", s+"-ovn-cluster", "router", "--", "lsp-set-addresses", s+"-ovn-cluster", "router",
			"--", "lsp-set-options", s+"-ovn-cluster", "router-port=ovn-cluster-"+s)
	}
	for port, addresses := range map[string]string{
		"early.web": "0a:00:00:00:00:05 10.16.0.5 fd00:10:16::5", "peer.web": "0a:00:00:00:00:06 10.16.0.6 fd00:10:16::6", "other.data": "0a:00:00:00:00:07 10.17.0.7 fd00:10:17::7",
	} {
		name, ns, _ := strings.Cut(port, ".")
		c.Nbctl("lsp-add", ns, port, "--", "lsp-set-addresses", port, addresses, "--", "lsp-set-port-security", port, addresses,
			"--", "set", "logical_switch_port", port, "external_ids:pod="+ns+"/"+name)
	}
	c.Nbctl("pg-add", "np.abc", "other.data")
	for match, row := range map[string][2]string{"ip": {"2000", "drop"}, "tcp.dst==80": {"2001", "allow-related"}} {
		c.Nbctl("--id=@a", "create", "acl", "direction=to-lport", "priority="+row[0], `match="outport == @np.abc && `+match+`"`, "action="+row[1],
			"external_ids:fairlead-owner=networkpolicy/data/deny", "--", "add", "port_group", "np.abc", "acls", "@a")
	}
	c.Nbctl("lb-add", "web/svc/tcp", "10.96.0.10:80", "10.16.0.6:8080,10.17.0.7:8080", "tcp", "--", "ls-lb-add", "web", "web/svc/tcp")
	for family, addr := range map[string]string{"ipv4": "fl_a_0", "ipv6": "fl_a_1"} { // spec.internalTrafficPolicy: Local
		c.Nbctl("--id=@l", "create", "load_balancer", "name=web/near/tcp/"+family, "protocol=tcp", "options={template=true,address-family="+family+"}",
			`vips={"^`+addr+`:80"="^`+addr+`_tcp_80"}`, "--", "add", "logical_switch", "web", "load_balancer", "@l")
	}
	for node, to := range map[string][2]string{"node-1": {"10.16.0.6:8080", "[fd00:10:16::6]:8080"}, "node-2": {"127.0.0.1:9", "[::1]:9"}} {
		c.Nbctl("create", "chassis_template_var", "chassis="+node,
			`variables={fl_a_0="10.96.0.11",fl_a_0_tcp_80="`+to[0]+`",fl_a_1="fd96::b",fl_a_1_tcp_80="`+to[1]+`"}`)
	}
	c.Nbctl("--wait=sb", "sync")
	for i, ch := range []string{"node-1", "node-2"} {
		c.Sbctl("chassis-add", ch, "geneve", "192.0.2."+string(rune('1'+i)))
	}
	c.Sbctl("lsp-bind", "early.web", "node-1", "--", "lsp-bind", "peer.web", "node-1", "--", "lsp-bind", "other.data", "node-2")
	return c
}

// ask runs a trace.
func ask(t *testing.T, c *ovn.Central, flags map[string]string, args ...string) (view.Answer, string) {
	t.Helper()
	all := question.All()
	q := all[slices.IndexFunc(all, func(q question.Question) bool { return q.Use == "trace" })]
	given := map[string]string{}
	for _, f := range q.Flags {
		given[f.Name] = f.Default
	}
	given["sb"], given["nb"], given["ovsdb"], given["central-run-dir"] = c.SB(), c.NB(), "unix:/nonexistent/db.sock", "/nonexistent"
	for k, v := range flags {
		given[k] = v
	}
	answer, err := q.Ask(t.Context(), question.Asked{Origin: client.Origin{Agent: client.New("/nonexistent")}, Args: args, Flags: given, Run: program.Run, Note: func(string) {}})
	require.NoError(t, err, args)
	var b bytes.Buffer
	require.NoError(t, answer.Text(&b, view.Options{}))
	return answer, b.String()
}

// TestTrace: the way of a packet through real OVN, told in order, the object that
// drops it named; in both families, to pods, Services and nowhere.
func TestTrace(t *testing.T) {
	t.Parallel()
	c := networks(t)
	for _, want := range []struct {
		args  []string
		flags map[string]string
		fails bool
		says  []string
	}{
		{args: []string{"web/early", "data/other", "tcp:81"}, fails: true, says: []string{
			"pod web/early (10.16.0.5) to pod data/other (10.17.0.7), tcp port 81\n", "out of pod     port early.web on node node-1", "port security  the packet is from",
			"router         ovn-cluster: ip4.dst == 10.17.0.0/16", "policy         NetworkPolicy data/deny drops it (towards the receiver)", "\nDROPPED by NetworkPolicy data/deny\n",
		}},
		{args: []string{"web/early", "data/other", "tcp:80"}, says: []string{
			"policy         NetworkPolicy data/deny lets it pass", "to node        node-2 by tunnel geneve 192.0.2.2", "into pod       data/other", "\nARRIVES at pod data/other\n", "not asked: the switch of the pod's node (run it on node node-1)",
		}},
		{args: []string{"web/early", "data/other", "tcp:80"}, flags: map[string]string{"ipv6": "true"}, says: []string{"(fd00:10:16::5)", "ip6.dst == fd00:10:17::/112", "ARRIVES"}},
		{args: []string{"web/early", "peer"}, says: []string{"to node        node-1 itself", "ARRIVES at pod web/peer"}},
		{args: []string{"early", "peer"}, flags: map[string]string{"namespace": "web"}, says: []string{"pod web/early (10.16.0.5) to pod web/peer (10.16.0.6), icmp\n", "ARRIVES"}},
		{args: []string{"web/early", "svc/web/svc", "tcp:80"}, says: []string{"to Service web/svc (10.96.0.10)", "Service        10.96.0.10: endpoint 10.16.0.6:8080, the first of 2", "ARRIVES at pod web/peer"}},
		{args: []string{"web/early", "10.96.0.10", "tcp:80"}, says: []string{"endpoint 10.16.0.6:8080"}},
		{args: []string{"web/early", "svc/near", "tcp:80"}, says: []string{
			"to Service web/near (10.96.0.11), tcp port 80\n", "Service        web/near: endpoint 10.16.0.6:8080 for the pod's node (spec.internalTrafficPolicy: Local, or hints)\n", "ARRIVES at pod web/peer",
		}},
		{args: []string{"web/early", "10.96.0.11", "tcp:80"}, says: []string{"web/near: endpoint 10.16.0.6:8080 for the pod's node", "ARRIVES at pod web/peer"}},
		{args: []string{"web/early", "svc/web/near", "tcp:80"}, flags: map[string]string{"ipv6": "true"}, says: []string{"endpoint [fd00:10:16::6]:8080 for the pod's node", "ARRIVES at pod web/peer"}},
		{args: []string{"data/other", "svc/web/near", "tcp:80"}, fails: true, says: []string{"\nDROPPED: Service web/near has no endpoint on the pod's node\n"}},
		{args: []string{"web/early", "203.0.113.9"}, fails: true, says: []string{"\nDROPPED: router ovn-cluster has no route to 203.0.113.9\n"}},
		{args: []string{"web/early", "10.17.0.99"}, fails: true, says: []string{"LOST: no port of OVN has 10.17.0.99"}},
		{args: []string{"web/early", "data/other", "tcp:81"}, flags: map[string]string{"nb": "unix:/nonexistent"}, fails: true, says: []string{
			"not asked: OVN's northbound database, so that rules are told by what they match", "DROPPED by a rule of OVN",
		}},
	} {
		answer, text := ask(t, c, want.flags, want.args...)
		require.Equal(t, want.fails, answer.Failed, text)
		for _, s := range want.says {
			require.Contains(t, text, s)
		}
	}
}

// TestTool: OVN's own programs on the databases that are named, or those of a member of
// central that runs here, with their exit code.
func TestTool(t *testing.T) {
	t.Parallel()
	c := networks(t)
	all := question.All()
	run := func(flags map[string]string, use string, args ...string) (int, string) {
		q := all[slices.IndexFunc(all, func(q question.Question) bool { return q.Under == "ovn" && q.Use == use })]
		var out, fault bytes.Buffer
		answer, err := q.Ask(t.Context(), question.Asked{
			Args: args, Flags: flags,
			Hand: func(argv ...string) (int, error) {
				return program.Hand(t.Context(), program.Streams{Out: &out, Err: &fault}, argv...)
			},
		})
		require.NoError(t, err)
		return answer.ExitCode(1, 3), out.String() + fault.String()
	}
	here := t.TempDir()
	for short, at := range map[string]string{"nb": c.NB(), "sb": c.SB()} {
		require.NoError(t, os.Symlink(strings.TrimPrefix(at, "unix:"), filepath.Join(here, short+".sock")))
	}
	named := map[string]string{"nb": c.NB(), "sb": c.SB()}
	for _, flags := range []map[string]string{named, {"central-run-dir": here, "ovsdb": "unix:/nonexistent"}} {
		code, text := run(flags, "nbctl", "--bare", "--columns=name", "find", "logical_switch", "name=web")
		require.Equal(t, 0, code, text)
		require.Equal(t, "web\n", text)
		code, text = run(flags, "sbctl", "get", "chassis", "node-2", "name")
		require.Equal(t, 0, code, text)
		require.Equal(t, "node-2\n", text)
	}
	code, text := run(named, "nbctl", "get", "logical_switch", "none", "name")
	require.Equal(t, 1, code)
	require.Contains(t, text, "no row")

	q := all[slices.IndexFunc(all, func(q question.Question) bool { return q.Use == "sbctl" })]
	_, err := q.Ask(t.Context(), question.Asked{Args: []string{"show"}, Flags: map[string]string{"sb": "ssl:192.0.2.1:6642", "state-dir": t.TempDir()}})
	require.ErrorContains(t, err, "no files are named")
	_, err = q.Ask(t.Context(), question.Asked{Args: []string{"show"}, Flags: map[string]string{"ovsdb": "unix:/nonexistent", "central-run-dir": t.TempDir()}})
	require.ErrorContains(t, err, "nobody tells")
}
