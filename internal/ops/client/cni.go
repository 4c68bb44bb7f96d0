package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
)

// CNI makes one CNI call as the plugin does. deliver gets the bytes that the
// plugin would print; only when it succeeds is the answer acknowledged, so
// that an answer nobody saw is undone by the next ADD. A call that failed is a
// *CNIError, and deliver is not called.
func (c *Client) CNI(ctx context.Context, req cni.Request, deliver func(output []byte) error) error {
	conn, err := (&net.Dialer{Timeout: cni.AcceptLimit}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return &NoAgentError{Socket: c.socket, Err: err}
	}
	defer func() { _ = conn.Close() }()
	// A cancelled command closes the connection; the agent then rolls back.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	resp, err := exchange(conn, c.socket, req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("the agent's answer did not come in time: %w", cause)
	}
	if err != nil {
		return err
	}
	if resp.Failed {
		// The error object counts as delivered when it has been read: there is
		// nothing that a retry would have to undo.
		_, _ = conn.Write([]byte{cni.Ack})
		return cniError(resp.Output)
	}
	if err := deliver(resp.Output); err != nil {
		return fmt.Errorf("deliver the result: %w", err)
	}
	if _, err := conn.Write([]byte{cni.Ack}); err != nil {
		return fmt.Errorf("acknowledge the result: %w", err)
	}
	return nil
}

// exchange sends the request in the plugin's two halves and reads the answer.
func exchange(conn net.Conn, socket string, req cni.Request) (cni.Response, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return cni.Response{}, fmt.Errorf("write the request: %w", err)
	}
	in := bufio.NewReader(conn)
	first, err := openRequest(conn, in, len(body))
	if err != nil {
		return cni.Response{}, &NoAgentError{Socket: socket, Err: err}
	}
	defer func() { _ = first.Body.Close() }()
	if first.StatusCode != http.StatusContinue {
		return readAnswer(first) // refused before the body: too large, not allowed
	}
	if _, err := conn.Write(body); err != nil {
		return cni.Response{}, fmt.Errorf("send the request: %w", err)
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return cni.Response{}, fmt.Errorf("read the answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	return readAnswer(resp)
}

// openRequest sends the head and reads the first answer within cni.AcceptLimit:
// `100 Continue`, or a final one.
func openRequest(conn net.Conn, in *bufio.Reader, length int) (*http.Response, error) {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", cni.PathCNI, length)
	if err := conn.SetDeadline(time.Now().Add(cni.AcceptLimit)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, head); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	return resp, conn.SetDeadline(time.Time{})
}

func readAnswer(resp *http.Response) (out cni.Response, err error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 2*cni.MaxBody)) // base64 in JSON
	if err != nil {
		return out, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return out, refused(resp.StatusCode, cni.PathCNI, body)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("read the answer: %w", err)
	}
	return out, nil
}

// CNIError is a CNI call that the agent answered with an error object.
type CNIError struct {
	Obj    cni.Error
	Output []byte // the object as it came, for -o json
}

func cniError(output []byte) error {
	e := &CNIError{Output: output}
	if err := json.Unmarshal(output, &e.Obj); err != nil || e.Obj.Msg == "" {
		// The bytes themselves stay in Output: they may hold anything.
		e.Obj = cni.Error{Code: 999, Msg: "the agent refused the call with an unreadable answer"}
	}
	return e
}

func (e *CNIError) Error() string {
	if e.Obj.Details == "" {
		return e.Obj.Msg
	}
	return e.Obj.Msg + ": " + e.Obj.Details
}

// Hint is what the error's code says to do next.
func (e *CNIError) Hint() string { return agent.Hint(e.Obj.Code) }
