// Package integration tests pgexec together with what it runs on: servers in
// containers, and whole processes. It is a module of its own, so that the
// product's go.mod does not list what only these tests need.
package integration

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/pgexec/runtime/schema"
)

// pullLimit bounds the wait for an image that is not on this machine yet.
const pullLimit = 2 * time.Minute

// The oldest PostgreSQL that has to work, and the newest that is tested; over
// the images named in PGEXEC_TEST_IMAGES, separated by commas, instead if set.
func TestMigrate_UpDownUpOnContainers(t *testing.T) {
	images := "postgres:14-alpine,postgres:17-alpine"
	if given := os.Getenv("PGEXEC_TEST_IMAGES"); given != "" {
		images = given
	}
	for image := range strings.SplitSeq(images, ",") {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			pool := startContainer(t, image)
			for range 2 {
				if _, err := schema.Up(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				if err := schema.Check(t.Context(), pool); err != nil {
					t.Errorf("after migrating up: %v", err)
				}
				insertRun(t, pool)
				if _, err := schema.Down(t.Context(), pool, 0); err != nil {
					t.Fatal(err)
				}
				if err := schema.Check(t.Context(), pool); err == nil {
					t.Error("after migrating down the schema is still found")
				}
			}
		})
	}
}

// insertRun does what an application does, and looks whether the run has its wake.
func insertRun(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var id string
	if err := pool.QueryRow(t.Context(), "insert into pgexec.runs (kind, input) values ('http', '{}') returning run_id::text").Scan(&id); err != nil {
		t.Fatal(err)
	}
	var jobs int
	err := pool.QueryRow(t.Context(), `select count(*) from pgexec.river_job j join pgexec.runs r on r.wake_job = j.id
		where r.run_id::text = $1 and j.args->>'run_id' = $1`, id).Scan(&jobs)
	if err != nil || jobs != 1 {
		t.Errorf("run %s has %d wake jobs (%v), want 1", id, jobs, err)
	}
}

func startContainer(t *testing.T, image string) *pgxpool.Pool {
	t.Helper()
	needImage(t, image)
	container, err := postgres.Run(t.Context(), image, postgres.BasicWaitStrategies())
	testcontainers.CleanupContainer(t, container)
	if err != nil && strings.Contains(err.Error(), "reaper: ") {
		t.Skipf("the Docker engine cannot fetch or run the container that cleans up after the others: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	url, err := container.ConnectionString(t.Context(), "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// needImage skips the test unless a Docker engine answers and has the image, or
// can fetch it: an engine that answers may still reach no registry.
func needImage(t *testing.T, image string) {
	t.Helper()
	testcontainers.SkipIfProviderIsNotHealthy(t)
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		t.Skipf("no Docker engine: %v", err)
	}
	defer provider.Close()
	ctx, cancel := context.WithTimeout(t.Context(), pullLimit)
	defer cancel()
	if _, err := provider.Client().ImageInspect(ctx, image); err == nil {
		return
	}
	if err := provider.PullImage(ctx, image); err != nil {
		t.Skipf("the Docker engine neither has image %s nor can fetch it: %v", image, err)
	}
}
