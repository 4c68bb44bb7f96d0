package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

const (
	// versionLimit is how long a program may take to tell its versions. What
	// does not answer is not asked again, and refuses ADD itself.
	versionLimit = 5 * time.Second
	// dialLimit is how long the DHCP daemon may take to accept.
	dialLimit = time.Second
	// dhcpSocket is where upstream's DHCP daemon listens unless it is told.
	dhcpSocket = "/run/cni/dhcp.sock"
	dhcpType   = "dhcp"
)

// Prove implements driver.Prover, as far as it is known before anything is made
// why an ADD cannot succeed: the plugin and its IPAM plugin are there, they speak the
// configuration's CNI version, and of those whose configuration is known
// (upstream's) every value is one that they can read. What a plugin refuses in
// ADD it mostly refuses in DEL too, and would never be undone.
//
// The error is a *core.Error that names network, plugin, key and value: 7, 1 for
// a version, 11 where no DHCP daemon answers.
func (d *Driver) Prove(ctx context.Context, s core.Spec) error {
	if s.Exec == nil {
		return core.Errorf(core.CodeConfig, "prove %s: the spec names no plugin", s.Key)
	}
	v := invocation{exec: *s.Exec, command: core.Add, key: s.Key}
	kind, known, err := d.prove(ctx, v)
	if err == nil && known && shapes[kind]["ipam"].fits != nil {
		kind, err = d.proveIPAM(ctx, v)
	}
	if err != nil {
		return core.WithCode(core.CodeConfig, fmt.Sprintf("network %s: plugin %q", s.Network, kind), err)
	}
	return nil
}

// prove is Prove for one plugin. known tells that it reads its configuration as
// upstream's does.
func (d *Driver) prove(ctx context.Context, v invocation) (kind string, known bool, err error) {
	kind = v.exec.Type
	inside := d.inside(kind, v.exec.Path, v.exec.Conf, false) != nil
	path, missing := "", error(nil)
	if !inside {
		path, missing = find(kind, v.exec.Path)
	}
	known = inside || missing == nil && d.origins.upstream(path, kind) || d.plugins[kind] != nil && errors.Is(missing, errNowhere)
	if known {
		err = d.proveConf(v)
	}
	if err == nil {
		err = missing
	}
	if err == nil && !inside {
		err = v.declared()
	}
	if err == nil && !inside {
		err = d.programs.speaks(ctx, path, v.exec.CNIVersion)
	}
	return kind, known, err
}

// proveConf looks at the values of a configuration that is known.
func (d *Driver) proveConf(v invocation) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	key := proof{v.exec.Type, string(v.exec.Conf), ofPlugins(v.exec.Args)}
	if d.proofs.has(key) {
		return nil
	}
	if err := shapes[v.exec.Type].refuse(v.exec.Conf); err != nil {
		return err
	}
	if p, ok := d.plugins[v.exec.Type].(driver.PluginProver); ok {
		if err := p.Prove(driver.PluginCall{Conf: v.exec.Conf, Key: v.key, Args: v.exec.Args}); err != nil {
			return err
		}
	}
	d.proofs.add(key)
	return nil
}

// proof is what proveConf judges by.
type proof struct{ kind, conf, args string }

// proofs remembers what was found good: most pods of a network come with the
// same configuration.
type proofs struct {
	mu   sync.Mutex
	good map[proof]bool
}

func (p *proofs) has(key proof) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.good[key]
}

func (p *proofs) add(key proof) {
	if len(key.conf)+len(key.args) > maxConf {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.good == nil || len(p.good) >= maxAnswers {
		p.good = map[proof]bool{}
	}
	p.good[key] = true
}

// ofPlugins is CNI_ARGS without what names the pod.
func ofPlugins(args string) string {
	pairs := slices.DeleteFunc(strings.Split(args, ";"), func(pair string) bool { return strings.HasPrefix(pair, "K8S_POD_") })
	return strings.Join(pairs, ";")
}

// proveIPAM is prove for the plugin that v's asks for addresses.
func (d *Driver) proveIPAM(ctx context.Context, v invocation) (kind string, err error) {
	kind, err = cniconf.IPAMType(v.exec.Conf)
	if err != nil || kind == "" {
		return v.exec.Type, err
	}
	v.exec.Type, v.nested = kind, true
	_, known, err := d.prove(ctx, v)
	if err != nil {
		return v.exec.Type, core.WithCode(core.CodeConfig, `key "ipam.type"`, err)
	}
	if known && kind == dhcpType {
		err = daemonAnswers(ctx, v.exec.Conf)
	}
	return kind, err
}

// daemonAnswers is nil when the DHCP daemon takes connections.
func daemonAnswers(ctx context.Context, conf json.RawMessage) error {
	var c struct {
		IPAM struct {
			DaemonSocketPath string `json:"daemonSocketPath"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(conf, &c); err != nil {
		return core.Errorf(core.CodeConfig, "configuration: %w", err)
	}
	path := c.IPAM.DaemonSocketPath
	if path == "" {
		path = dhcpSocket
	}
	ctx, stop := context.WithTimeout(ctx, dialLimit)
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return &core.Error{
			Code: core.CodeTryAgain, Err: err, Msg: "no DHCP daemon listens at " + path,
			Details: "start it (`dhcp daemon`), or give its socket in ipam.daemonSocketPath: " + err.Error(),
		}
	}
	return conn.Close()
}

// programs remembers which CNI versions the programs have: each is asked once.
type programs struct{ known sync.Map } // identity -> []string, nil where it does not tell

// speaks refuses a CNI version that the program at path says it has not. One
// that cannot say is taken to have it.
func (p *programs) speaks(ctx context.Context, path, version string) error {
	id, err := identityAt(path)
	if err != nil {
		return core.Errorf(core.CodeConfig, "%s: %w", path, err)
	}
	has, asked := p.known.Load(id)
	if !asked {
		versions, told := askVersions(ctx, path)
		if ctx.Err() != nil {
			return core.WithCode(core.CodeTryAgain, "ask "+path+" for its versions", ended(ctx))
		}
		if has = versions; told {
			p.known.Store(id, versions)
		}
	}
	versions := has.([]string) //nolint:forcetypeassert // the map has nothing else
	if len(versions) == 0 || slices.Contains(versions, version) {
		return nil
	}
	return &core.Error{
		Code: core.CodeVersion, Msg: fmt.Sprintf("key \"cniVersion\": %q is none of those that %s has: %q", version, path, versions),
		Details: "write one of these, or install a newer version of the plugin",
	}
}

// askVersions runs VERSION (CNI spec 1.1), which makes nothing: nobody need know
// of the process. There are none where the program does not know the command;
// told is false where it could not be run, and is to be asked again.
func askVersions(ctx context.Context, path string) (versions []string, told bool) {
	ctx, stop := context.WithTimeout(ctx, versionLimit)
	defer stop()
	// Old versions of libcni's skeleton want all of the environment.
	p := process{path: path, env: []string{
		"CNI_COMMAND=VERSION", "CNI_CONTAINERID=dummy", "CNI_NETNS=dummy", "CNI_IFNAME=dummy", "CNI_PATH=dummy", "PATH=" + searchPath,
	}}
	all := cniconf.Supported()
	if err := p.run(ctx, []byte(`{"cniVersion":"`+all[len(all)-1]+`"}`)); err != nil {
		_, exited := errors.AsType[*exec.ExitError](err)
		return nil, exited || ctx.Err() != nil || errors.Is(err, errTooMuch)
	}
	var said struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(p.stdout.data.Bytes(), &said) != nil {
		return nil, true
	}
	return said.SupportedVersions, true
}
