// Command fairlead-cni is the CNI plugin that a runtime executes: it hands its
// environment and standard input to the agent over a unix socket, prints the
// agent's answer and acknowledges it. It answers to any name it is installed
// under (fairlead, multus, kube-ovn). It has no configuration of its own,
// starts no process and decides nothing: what is right or wrong with a call is
// the agent's to say.
//
// Most of a small program's time is its start (spec/performance.md, rule 4),
// so it uses neither net nor net/http, nor fmt and encoding/json.
package main

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/cni"
)

// What the plugin says itself; the table is in package api/cni.
const (
	codeVersion  = 1
	codeEnv      = 4
	codeIO       = 5
	codeDecode   = 6
	codeTryAgain = 11
	codeNotReady = 50
)

// totalLimit bounds one call; the agent gives up an ADD after 50 s, so that its
// own words arrive before this ends.
const totalLimit = 55 * time.Second

// versions are the CNI versions that the agent serves, newest last.
var versions = [...]string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func main() {
	c := call{start: time.Now(), req: cni.Request{
		Command:     os.Getenv("CNI_COMMAND"),
		ContainerID: os.Getenv("CNI_CONTAINERID"),
		Netns:       os.Getenv("CNI_NETNS"),
		IfName:      os.Getenv("CNI_IFNAME"),
		Args:        os.Getenv("CNI_ARGS"),
		Path:        os.Getenv("CNI_PATH"),
		Token:       os.Getenv(cni.EnvToken),
		Boottime:    boottime(),
	}}
	os.Exit(c.run())
}

// call is one execution by a runtime.
type call struct {
	start time.Time
	req   cni.Request
	conf  conf
}

// failure is a CNI error of the plugin's own.
type failure struct {
	code         int
	msg, details string
}

// run does the call and gives the exit status.
func (c *call) run() int {
	if f := c.prepare(); f != nil {
		return c.report(f)
	}
	if c.req.Command == "VERSION" {
		return c.version()
	}
	if c.req.Token != "" && c.req.Command == "DEL" {
		return 0 // the addresses go with the record of whoever runs this DEL
	}
	body := encodeRequest(c.req)
	if len(body) > cni.MaxBody {
		return c.report(&failure{codeDecode, "standard input is too large", "a request may have " + number(cni.MaxBody) + " bytes, this one has " + number(len(body))})
	}
	socket, path := c.target()
	agent, err := dial(socket, c.start.Add(cni.AcceptLimit))
	if err != nil {
		return c.absent(socket, err)
	}
	answer, err := agent.exchange(path, body, c.start.Add(totalLimit))
	if no, ok := errors.AsType[*refusal](err); ok {
		return c.report(no.failure())
	}
	if err != nil {
		return c.absent(socket, err)
	}
	if !c.print(answer.Output) {
		return 1 // nobody read it: without the acknowledgement an ADD is undone
	}
	agent.acknowledge()
	if answer.Failed {
		return 1
	}
	return 0
}

// target is where the call goes. One with a token is for the agent that gave it,
// wherever the configuration says that an agent listens.
func (c *call) target() (socket, path string) {
	socket, path = c.conf.socketPath(), cni.PathCNI
	if c.req.Token == "" {
		return socket, path
	}
	if s := os.Getenv(cni.EnvSocket); s != "" {
		socket = s
	}
	return socket, cni.PathJoin
}

// prepare checks the environment and reads standard input.
func (c *call) prepare() *failure {
	need, ok := needs(&c.req)
	if !ok {
		if c.req.Command == "" {
			return &failure{codeEnv, "CNI_COMMAND is missing", "this is a CNI plugin: a container runtime calls it"}
		}
		return &failure{codeEnv, "CNI_COMMAND " + c.req.Command + " is not known", "known are ADD, DEL, CHECK, GC, STATUS and VERSION"}
	}
	missing := ""
	for _, v := range need {
		if v.value == "" {
			missing += ", " + v.name
		}
	}
	stdin, err := readAll(0, cni.MaxBody, c.start.Add(totalLimit))
	if err == nil || errors.Is(err, errTooLarge) {
		c.conf = scanConf(stdin)
		c.req.Config = stdin
	}
	switch {
	case missing != "":
		return &failure{codeEnv, missing[2:] + " missing", "CNI_COMMAND " + c.req.Command + " needs them"}
	case errors.Is(err, errTooLarge):
		return &failure{codeDecode, "standard input is too large", "a configuration may have at most " + number(cni.MaxBody) + " bytes"}
	case err != nil && c.req.Command != "VERSION": // it needs no configuration
		return &failure{codeIO, "standard input cannot be read", err.Error()}
	}
	return nil
}

// floors are the first CNI versions that know a command.
var floors = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0"}

// unfit refuses what an agent would refuse, with its code: a runtime must not try
// again what can never succeed. A DEL is never unfit.
func (c *call) unfit() *failure {
	if c.req.Command == "DEL" {
		return nil
	}
	if !whole(c.req.Config) {
		return &failure{codeDecode, "standard input is not one whole JSON object", "it has " + number(len(c.req.Config)) + " bytes; the runtime's configuration, or the way from it, is damaged"}
	}
	floor, said := floors[c.req.Command], c.conf.cniVersion
	if said == "" {
		said = versions[0] // what an absent one means
	}
	if at := slices.Index(versions[:], said); at >= 0 && at < slices.Index(versions[:], floor) {
		return &failure{codeVersion, "incompatible CNI version", "cniVersion " + said + " has no " + c.req.Command + ": that came with " + floor}
	}
	return nil
}

type variable struct{ name, value string }

// needs lists the variables that a command cannot do without (CNI spec 1.1,
// section 2); false for an unknown command.
func needs(r *cni.Request) ([]variable, bool) {
	id, ifName := variable{"CNI_CONTAINERID", r.ContainerID}, variable{"CNI_IFNAME", r.IfName}
	switch r.Command {
	case "ADD", "CHECK":
		return []variable{id, ifName, {"CNI_NETNS", r.Netns}}, true
	case "DEL":
		return []variable{id, ifName}, true
	case "GC", "STATUS", "VERSION":
		return nil, true
	}
	return nil, false
}

// version answers VERSION, which needs no agent. A cniVersion that is absent
// or not known to us is answered with the newest.
func (c *call) version() int {
	newest := versions[len(versions)-1]
	said := newest
	out := `,"supportedVersions":[`
	for i, v := range versions {
		if i > 0 {
			out += ","
		}
		out += `"` + v + `"`
		if v == c.conf.cniVersion {
			said = v
		}
	}
	if !c.print([]byte(`{"cniVersion":"` + said + `"` + out + "]}\n")) {
		return 1
	}
	return 0
}

// absent ends a call that no agent has answered. A DEL is left for the agent
// as an intent and succeeds; nothing else may claim success.
func (c *call) absent(socket string, cause error) int {
	if f := c.unfit(); f != nil {
		return c.report(f)
	}
	switch c.req.Command {
	case "DEL":
		if err := leaveIntent(socket, c.req, c.start); err != nil {
			return c.report(&failure{codeIO, "no answer from an agent at " + socket + ", and the DEL cannot be left for it", err.Error()})
		}
		return 0
	case "STATUS":
		return c.report(&failure{codeNotReady, "no answer from an agent at " + socket, cause.Error()})
	}
	return c.report(&failure{codeTryAgain, "no answer from an agent at " + socket, cause.Error() + "; start fairlead agent, or see what it logs"})
}

// report prints the error object.
func (c *call) report(f *failure) int {
	out := []byte("{")
	if c.conf.cniVersion != "" {
		out = appendString(append(out, `"cniVersion":`...), c.conf.cniVersion)
		out = append(out, ',')
	}
	out = append(out, `"code":`+number(f.code)+`,"msg":`...)
	out = appendString(out, f.msg)
	if f.details != "" {
		out = appendString(append(out, `,"details":`...), f.details)
	}
	c.print(append(out, "}\n"...))
	return 1
}

// print writes to standard output and tells success.
func (c *call) print(data []byte) bool { return output(1, data, c.start.Add(totalLimit)) }
