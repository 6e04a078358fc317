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
	random := make([]byte, 20)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("choose password: %w", err)
	}
	password := hex.EncodeToString(random[4:])
	c := &container{name: "pgexec-demo-" + hex.EncodeToString(random[:4])}
	if err := c.startTether(); err != nil {
		return nil, err
	}
	db, err := c.start(ctx, image, password)
	if err != nil {
		err = fmt.Errorf("start %s in Docker: %w\n  name another image with --docker-image, or a server with --database-url", image, err)
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
		"run", "--detach", "--rm", "--name", c.name, "--publish", "127.0.0.1::5432", "--env", "POSTGRES_PASSWORD", image)
	if err != nil {
		return nil, err
	}
	address, err := docker(ctx, nil, "port", c.name, "5432/tcp")
	if err != nil {
		return nil, c.orEnded(ctx, err)
	}
	address, _, _ = strings.Cut(address, "\n")
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Host: address,
		Path: "/postgres", RawQuery: "sslmode=disable",
	}
	if err := c.untilAnswers(ctx, u.String()); err != nil {
		return nil, err
	}
	if err := administer(ctx, u.String(), "database_create", databaseName); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	u.Path = "/" + databaseName
	return &database{url: u.String(), where: image + " in Docker", removeFunc: c.remove, keepFunc: c.keep}, nil
}

// untilAnswers waits for the server in the container to have set itself up.
func (c *container) untilAnswers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it did not answer within a minute"))
	defer cancel()
	for tries := 1; ; tries++ {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			return conn.Close(ctx)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for the server in the container: %w: %w", context.Cause(ctx), err)
		}
		if tries%10 == 0 {
			if err := c.orEnded(ctx, nil); err != nil {
				return err
			}
		}
	}
}

// orEnded returns err, unless the container is no more, which explains it.
func (c *container) orEnded(ctx context.Context, err error) error {
	running, gone := docker(ctx, nil, "inspect", "--format", "{{.State.Running}}", c.name)
	if ctx.Err() == nil && (gone != nil || running != "true") {
		return errors.New("the container has ended by itself; docker run -e POSTGRES_PASSWORD=x IMAGE shows why")
	}
	return err
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
