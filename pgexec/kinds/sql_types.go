package kinds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pgexec/runtime/sql"
)

// sqlType is what reading and writing a type's text form needs.
type sqlType struct {
	// base is the type itself, or what a domain is made of.
	base uint32
	// elem is the element type of an array, else 0.
	elem uint32
	// delim separates the elements of an array.
	delim byte
}

// typeTable knows types by their oid.
type typeTable map[uint32]sqlType

func (t typeTable) base(oid uint32) uint32 {
	if known, ok := t[oid]; ok {
		return known.base
	}
	return oid
}

// firstUserOID is the first oid that initdb does not give: types below it are
// the same for the life of a database.
const firstUserOID = 16384

// typeCache keeps what is known of built-in types.
type typeCache struct {
	mu      sync.Mutex
	builtin typeTable
}

func (c *typeCache) known(oids []uint32) (table typeTable, unknown []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	table = make(typeTable)
	for _, oid := range oids {
		if t, ok := c.builtin[oid]; ok {
			table[oid] = t
		} else if !slices.Contains(unknown, oid) {
			unknown = append(unknown, oid)
		}
	}
	return table, unknown
}

func (c *typeCache) keep(table typeTable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.builtin == nil {
		c.builtin = make(typeTable)
	}
	for oid, t := range table {
		if oid < firstUserOID {
			c.builtin[oid] = t
		}
	}
}

// lookup returns the types of oids and of the elements of those that are arrays.
func (c *typeCache) lookup(ctx context.Context, conn *pgx.Conn, oids []uint32) (typeTable, error) {
	table, unknown := c.known(oids)
	if len(unknown) > 0 {
		found, err := queryTypes(ctx, conn, unknown)
		if err != nil {
			return nil, err
		}
		c.keep(found)
		maps.Copy(table, found)
	}
	var elems []uint32
	for _, t := range table {
		if t.elem != 0 {
			elems = append(elems, t.elem)
		}
	}
	if len(elems) == 0 {
		return table, nil
	}
	// PostgreSQL has no arrays of arrays, but a domain over an array may be an
	// element; its own elements are then looked up in turn.
	inner, err := c.lookup(ctx, conn, elems)
	if err != nil {
		return nil, err
	}
	maps.Copy(table, inner)
	return table, nil
}

func queryTypes(ctx context.Context, conn *pgx.Conn, oids []uint32) (typeTable, error) {
	rows, err := conn.Query(ctx, sql.KindsSQLTypes, oids)
	if err != nil {
		return nil, fmt.Errorf("look up types: %w", err)
	}
	table := make(typeTable)
	var oid uint32
	var t sqlType
	var delim string
	_, err = pgx.ForEachRow(rows, []any{&oid, &t.base, &t.elem, &delim}, func() error {
		t.delim = delim[0]
		table[oid] = t
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up types: %w", err)
	}
	return table, nil
}
