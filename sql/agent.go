package sql

import _ "embed"

// Statements of the stock agent.
var (
	//go:embed agent_definition.sql
	AgentDefinition string
	//go:embed agent_former.sql
	AgentFormer string
	//go:embed agent_turn.sql
	AgentTurn string
)
