"""An encoder of BERT-base's size learns to fill in masked tokens, of random texts."""
import argparse

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab_size, seq_len, dim, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, dim)
        self.positions = nn.Embedding(seq_len, dim)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim_feedforward=4 * dim, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.decoder = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        positions = torch.arange(ids.size(1), device=ids.device)
        x = self.tokens(ids) + self.positions(positions)
        x = self.encoder(self.dropout(self.norm(x)))
        return self.decoder(self.head(x))


def mask_tokens(ids, mask_id):
    labels = ids.clone()
    masked = torch.rand(ids.shape) < 0.15
    masked[:, 0] = True
    labels[~masked] = -100
    inputs = ids.clone()
    inputs[masked] = mask_id
    return inputs, labels


def make_batches(vocab_size, batch_size, seq_len, count):
    batches = []
    for _ in range(count):
        ids = torch.randint(1, vocab_size, (batch_size, seq_len))
        batches.append(mask_tokens(ids, 0))
    return batches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--vocab-size", type=int, default=30522)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batches = make_batches(args.vocab_size, args.batch_size, args.seq_len, 8)
    model = Encoder(args.vocab_size, args.seq_len, args.dim, args.heads, args.layers).to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    use_amp = torch.device(device).type == "cuda"
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / args.warmup)
    )

    model.train()
    for step in range(args.steps):
        ids, labels = batches[step % len(batches)]
        ids, labels = ids.to(device), labels.to(device)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
            logits = model(ids)
            loss = criterion(logits.view(-1, logits.size(-1)), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % args.log_every == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
