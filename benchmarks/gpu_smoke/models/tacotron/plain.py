"""Speech from text, as Tacotron does it: a recurrent encoder and decoder with attention; random data."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, symbols, dim):
        super().__init__()
        self.embedding = nn.Embedding(symbols, dim)
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(dim, dim, 5, padding=2), nn.BatchNorm1d(dim), nn.ReLU(), nn.Dropout(0.5))
            for _ in range(3)
        )
        self.lstm = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, text):
        x = self.embedding(text).transpose(1, 2)
        for conv in self.convs:
            x = conv(x)
        out, _ = self.lstm(x.transpose(1, 2))
        return out


class Attention(nn.Module):
    def __init__(self, query_dim, memory_dim, dim):
        super().__init__()
        self.query = nn.Linear(query_dim, dim, bias=False)
        self.memory = nn.Linear(memory_dim, dim, bias=False)
        self.location = nn.Conv1d(1, 32, 31, padding=15, bias=False)
        self.location_proj = nn.Linear(32, dim, bias=False)
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, query, memory, keys, cumulative):
        location = self.location_proj(self.location(cumulative.unsqueeze(1)).transpose(1, 2))
        energy = self.score(torch.tanh(self.query(query).unsqueeze(1) + keys + location)).squeeze(2)
        weights = F.softmax(energy, dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        return context, weights


class Decoder(nn.Module):
    def __init__(self, mels, memory_dim, prenet_dim, dim, attention_dim):
        super().__init__()
        self.mels = mels
        self.dim = dim
        self.prenet = nn.Sequential(
            nn.Linear(mels, prenet_dim), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(prenet_dim, prenet_dim), nn.ReLU(), nn.Dropout(0.5),
        )
        self.attention_rnn = nn.LSTMCell(prenet_dim + memory_dim, dim)
        self.attention = Attention(dim, memory_dim, attention_dim)
        self.decoder_rnn = nn.LSTMCell(dim + memory_dim, dim)
        self.projection = nn.Linear(dim + memory_dim, mels)
        self.gate = nn.Linear(dim + memory_dim, 1)

    def forward(self, memory, targets):
        batch, length, _ = memory.shape
        frames = torch.cat([targets.new_zeros(batch, 1, self.mels), targets[:, :-1]], dim=1)
        frames = self.prenet(frames)
        keys = self.attention.memory(memory)
        att_h = att_c = dec_h = dec_c = targets.new_zeros(batch, self.dim)
        context = targets.new_zeros(batch, memory.size(2))
        cumulative = targets.new_zeros(batch, length)
        mels, gates = [], []
        for t in range(frames.size(1)):
            att_h, att_c = self.attention_rnn(torch.cat([frames[:, t], context], dim=1), (att_h, att_c))
            context, weights = self.attention(att_h, memory, keys, cumulative)
            cumulative = cumulative + weights
            dec_h, dec_c = self.decoder_rnn(torch.cat([att_h, context], dim=1), (dec_h, dec_c))
            out = torch.cat([dec_h, context], dim=1)
            mels.append(self.projection(out))
            gates.append(self.gate(out).squeeze(1))
        return torch.stack(mels, dim=1), torch.stack(gates, dim=1)


class Tacotron(nn.Module):
    def __init__(self, symbols, mels, dim):
        super().__init__()
        self.encoder = Encoder(symbols, dim)
        self.decoder = Decoder(mels, dim, dim // 2, 2 * dim, dim // 4)
        self.postnet = nn.Sequential(
            nn.Conv1d(mels, dim, 5, padding=2), nn.BatchNorm1d(dim), nn.Tanh(), nn.Dropout(0.5),
            nn.Conv1d(dim, dim, 5, padding=2), nn.BatchNorm1d(dim), nn.Tanh(), nn.Dropout(0.5),
            nn.Conv1d(dim, mels, 5, padding=2),
        )

    def forward(self, text, targets):
        mels, gates = self.decoder(self.encoder(text), targets)
        refined = mels + self.postnet(mels.transpose(1, 2)).transpose(1, 2)
        return mels, refined, gates


class TacotronLoss(nn.Module):
    def forward(self, outputs, mel_targets, gate_targets):
        mels, refined, gates = outputs
        mel_loss = F.mse_loss(mels, mel_targets) + F.mse_loss(refined, mel_targets)
        gate_loss = F.binary_cross_entropy_with_logits(gates, gate_targets)
        return mel_loss + gate_loss


def make_batches(args, count):
    batches = []
    for _ in range(count):
        text = torch.randint(0, args.symbols, (args.batch_size, args.text_len))
        mels = torch.randn(args.batch_size, args.frames, args.mels)
        gates = torch.zeros(args.batch_size, args.frames)
        gates[:, -1] = 1.0
        batches.append((text, mels, gates))
    return batches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--text-len", type=int, default=96)
    parser.add_argument("--frames", type=int, default=160)
    parser.add_argument("--symbols", type=int, default=148)
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-every", type=int, default=25)
    args = parser.parse_args()

    torch.manual_seed(1234)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = make_batches(args, 4)
    model = Tacotron(args.symbols, args.mels, args.dim).to(device)
    criterion = TacotronLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-6)

    model.train()
    for step in range(args.steps):
        text, mels, gates = [x.to(device) for x in batches[step % len(batches)]]
        model.zero_grad()
        outputs = model(text, mels)
        loss = criterion(outputs, mels, gates)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % args.log_every == 0:
            print(f"step {step}: loss {loss.item():.4f}, gradient norm {grad_norm.item():.3f}")


if __name__ == "__main__":
    main()
