package wake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgexec/runtime/pgexec/runlog"
	"github.com/pgexec/runtime/sql"
)

// MaxJSONBytes bounds JSON that is a column of a table: the input of a run or a task, the payload of a signal, the
// output of a task. The database refuses what is longer (function pgexec.check_size).
const MaxJSONBytes = 128 << 20

// apartTimeout bounds the read of JSON that is not small.
const apartTimeout = 3 * time.Minute

// ErrGone says that a row is not there any more: somebody has deleted it.
var ErrGone = errors.New("it is not there any more")

// ReadInput reads the input of a run, of any size. The error is [ErrNoRun] if there is none.
func ReadInput(ctx context.Context, pool *pgxpool.Pool, id runlog.RunID) ([]byte, error) {
	input, err := readApart(ctx, pool, sql.LifeInput, id)
	if errors.Is(err, ErrGone) {
		err = ErrNoRun
	}
	if err != nil {
		return nil, fmt.Errorf("read input of run %s: %w", id, err)
	}
	return input, nil
}

// ReadSignal reads the payload of a signal, of any size. The error is [ErrGone] if there is none.
func ReadSignal(ctx context.Context, pool *pgxpool.Pool, signalID int64) ([]byte, error) {
	payload, err := readApart(ctx, pool, sql.LifeSignalPayload, signalID)
	if err != nil {
		return nil, fmt.Errorf("read payload of signal %d: %w", signalID, err)
	}
	return payload, nil
}

// ReadTaskOutput reads the output of a task that has ended well, of any size. The error is [ErrGone] if there is none.
func ReadTaskOutput(ctx context.Context, pool *pgxpool.Pool, taskID int64) ([]byte, error) {
	output, err := readApart(ctx, pool, sql.LifeTaskOutput, taskID)
	if err != nil {
		return nil, fmt.Errorf("read output of task %d: %w", taskID, err)
	}
	return output, nil
}

func readApart(ctx context.Context, pool *pgxpool.Pool, statement string, id any) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, apartTimeout)
	defer cancel()
	err = pool.QueryRow(ctx, statement, id).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrGone
	}
	return text, err
}
