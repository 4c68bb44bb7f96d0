// Command load gives a Docker Engine the images that `make run` needs, made
// from programs of this machine: no registry is asked. It waits for the engine.
//
//	load unix:///path/docker.sock PATH-OF-PAUSE
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// busybox is the name by which examples/ call ours.
const busybox = "docker.io/library/busybox:1.36"

// patience bounds the wait for the engine.
const patience = time.Minute

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: load HOST PAUSE")
		os.Exit(2)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	err := load(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func load(ctx context.Context, host, program string) error {
	pause, err := image.Pause(program)
	if err != nil {
		return err
	}
	box, err := image.Busybox()
	if err != nil {
		return err
	}
	engine, err := client.New(client.WithHost(host))
	if err != nil {
		return err
	}
	defer engine.Close()
	for _, err = engine.Ping(ctx, client.PingOptions{}); err != nil; _, err = engine.Ping(ctx, client.PingOptions{}) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("docker does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, archive := range [][]byte{pause, box} {
		if err := give(ctx, engine, archive); err != nil {
			return err
		}
	}
	_, err = engine.ImageTag(ctx, client.ImageTagOptions{Source: image.BusyboxName, Target: busybox})
	return err
}

// give loads one archive in the form of `docker save`.
func give(ctx context.Context, engine *client.Client, archive []byte) error {
	r, err := engine.ImageLoad(ctx, bytes.NewReader(archive))
	if err != nil {
		return err
	}
	said, err := io.ReadAll(r)
	if err == nil && bytes.Contains(said, []byte(`"error"`)) {
		err = fmt.Errorf("load an image: %s", said)
	}
	return errors.Join(err, r.Close())
}
