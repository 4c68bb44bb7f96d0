// The recorder is a CNI plugin for tests: it appends every call to calls.jsonl
// beside itself and then does what the file <type>.<COMMAND> there says, or
// succeeds: with prevResult where it gets one, else with an empty result. VERSION
// is no call: it is answered, and not written down.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// call is one line of calls.jsonl.
type call struct {
	Type  string            `json:"type"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
	PID   int               `json:"pid"`
	Child int               `json:"child,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		_, err := fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`)
		return err
	}
	dir, name := filepath.Split(os.Args[0])
	order, _ := os.ReadFile(filepath.Join(dir, name+"."+os.Getenv("CNI_COMMAND"))) // none: succeed
	what, rest, _ := strings.Cut(strings.TrimSpace(string(order)), " ")
	c := call{Type: name, Env: map[string]string{}, Stdin: stdin, PID: os.Getpid()}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		c.Env[k] = v
	}
	child := exec.Command("sleep", "1000")
	if what == "hang" {
		if err := child.Start(); err != nil {
			return err
		}
		c.Child = child.Process.Pid
	}
	if err := note(dir, c); err != nil {
		return err
	}
	return obey(what, rest, stdin, child)
}

func note(dir string, c call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}

func obey(what, rest string, stdin []byte, child *exec.Cmd) error {
	switch what {
	case "fail": // fail CODE MESSAGE
		code, msg, _ := strings.Cut(rest, " ")
		fmt.Printf(`{"cniVersion":"1.0.0","code":%s,"msg":%q,"details":"as the test told it"}`, code, msg)
		os.Exit(1)
	case "die": // by a signal, after words on standard error
		fmt.Fprintln(os.Stderr, rest)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "print": // these bytes
		fmt.Print(rest)
	case "huge": // more than the agent takes
		fmt.Print(`{"x":"`, strings.Repeat("x", 2<<20), `"}`)
	case "hang":
		return child.Wait()
	default:
		fmt.Print(result(stdin))
	}
	return nil
}

// result is prevResult, or one that says nothing.
func result(stdin []byte) string {
	var conf struct {
		CNIVersion string          `json:"cniVersion"`
		PrevResult json.RawMessage `json:"prevResult"`
	}
	_ = json.Unmarshal(stdin, &conf) // a broken conf is for the test to see
	if len(conf.PrevResult) > 0 {
		return string(conf.PrevResult)
	}
	return fmt.Sprintf(`{"cniVersion":%q}`, conf.CNIVersion)
}
