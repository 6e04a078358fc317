package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// dockerAnswers says why Docker is of no use here, nil if it is.
func dockerAnswers(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("there is no docker command")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := docker(ctx, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		return errors.New("its daemon does not answer")
	}
	return nil
}

// docker runs the command line client in a session of its own, so that a
// terminal's Ctrl-C reaches the demo alone.
func docker(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complained
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(complained.String()))
	}
	return strings.TrimSpace(said.String()), nil
}

// containerTether waits for the end of its input, which comes also when the demo
// is killed, and then removes the container, unless told to keep it.
const containerTether = `read -r word; [ "$word" = keep ] || docker rm -f -v "$1" >/dev/null 2>&1`

type container struct {
	name   string
	tether *exec.Cmd
	stdin  io.WriteCloser
}

// startContainer runs a server in a container that only this machine reaches.
func startContainer(ctx context.Context, image string) (*database, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("choose password: %w", err)
	}
	password := hex.EncodeToString(secret)
	c := &container{name: "pgexec-demo-" + hex.EncodeToString(secret[:4])}
	if err := c.startTether(); err != nil {
		return nil, err
	}
	db, err := c.start(ctx, image, password)
	if err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return db, nil
}

func (c *container) startTether() (err error) {
	c.tether = exec.Command("/bin/sh", "-c", containerTether, "sh", c.name)
	c.tether.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.stdin, err = c.tether.StdinPipe(); err == nil {
		err = c.tether.Start()
	}
	if err != nil {
		return fmt.Errorf("start tether: %w", err)
	}
	return nil
}

func (c *container) start(ctx context.Context, image, password string) (*database, error) {
	_, err := docker(ctx, []string{"POSTGRES_PASSWORD=" + password},
		"run", "--detach", "--rm", "--name", c.name, "--publish", "127.0.0.1::5432", "--env", "POSTGRES_PASSWORD",
		"--env", "POSTGRES_DB="+databaseName, image)
	if err != nil {
		return nil, err
	}
	address, err := docker(ctx, nil, "port", c.name, "5432/tcp")
	if err != nil {
		return nil, err
	}
	address, _, _ = strings.Cut(address, "\n")
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Host: address,
		Path: "/" + databaseName, RawQuery: "sslmode=disable",
	}
	db := &database{
		url: u.String(), where: image + " in Docker",
		removeFunc: c.remove, keepFunc: c.keep,
	}
	return db, untilAnswers(ctx, db.url)
}

// untilAnswers waits for the server in a container to have set itself up.
func untilAnswers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the server in the container did not answer within a minute"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// remove lets the tether remove the container and waits for it.
func (c *container) remove() error {
	if err := c.stdin.Close(); err != nil {
		return fmt.Errorf("remove container %s: %w", c.name, err)
	}
	// It fails for a container that never came to be.
	_ = c.tether.Wait()
	return nil
}

func (c *container) keep() (string, error) {
	if _, err := io.WriteString(c.stdin, "keep\n"); err != nil {
		return "", fmt.Errorf("keep container %s: %w", c.name, err)
	}
	return "docker rm -f -v " + c.name, c.tether.Wait()
}
